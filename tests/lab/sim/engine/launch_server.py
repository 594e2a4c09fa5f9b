# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry point: ``python -m sglang.launch_server --model-path ...``.

Environment of the lab: ``BWLAB_START_DELAY``, the seconds from the start to the first good /health (1.0).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

# Loaded for what their loading proves: that the installed packages fit together. --help does it too, as the real one.
import flashinfer as flashinfer  # type: ignore[import-not-found]
import sgl_kernel as sgl_kernel  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]

from . import __version__
from .arguments import parse
from .gpu import Card, Driver, GpuError
from .http_server import Engine, EngineServer

_SUPPORTED = (
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
_DRAIN_LIMIT_S = 60.0


class StartError(Exception):
    """Why the server cannot start; it ends with 1."""


def log(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def read_model(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StartError(f"Can't load the configuration of '{path}': there is no config.json in it") from error
    except (OSError, ValueError) as error:
        raise StartError(f"Can't load the configuration of '{path}': {error}") from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not set(map(str, architectures)) & set(_SUPPORTED):
        raise StartError(f"Model architectures {architectures} are not supported for now. Supported architectures: {_SUPPORTED}")
    return dict(config)


def take_cards(options: argparse.Namespace) -> list[Card]:
    try:
        driver = Driver()
        ordinals = range(options.base_gpu_id, options.base_gpu_id + options.tp_size)
        return [driver.take(ordinal, options.mem_fraction_static) for ordinal in ordinals]
    except GpuError as error:
        raise StartError(f"RuntimeError: {error}") from error


def make_engine(options: argparse.Namespace, config: dict[str, Any], cards: list[Card]) -> Engine:
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    longest = text.get("max_position_embeddings", 32768) if isinstance(text, dict) else 32768
    context_length = options.context_length or int(longest)
    name = options.served_model_name or options.model_path
    given = {key: value for key, value in vars(options).items() if value is not None}
    return Engine(
        model_name=name,
        fingerprint=cards[0].uuid,
        context_length=context_length,
        max_running_requests=options.max_running_requests,
        api_key=options.api_key,
        metrics_enabled=bool(options.enable_metrics),
        model_info={
            "model_path": options.model_path,
            "served_model_name": name,
            "tokenizer_path": options.tokenizer_path or options.model_path,
            "is_generation": True,
            "weight_version": "default",
            "has_image_understanding": "vision_config" in config,
            "model_type": config.get("model_type"),
            "architectures": config["architectures"],
        },
        # With the API key among the arguments, as the real one answers.
        server_info={
            **given,
            "max_total_num_tokens": context_length,
            "max_req_input_len": context_length - 1,
            "internal_states": [{"last_gen_throughput": 0.0}],
            "version": __version__,
        },
    )


def drain(server: EngineServer) -> None:
    """Ends as soon as nothing runs any more. New requests are still taken meanwhile, as in the real one."""
    server.engine.state = "draining"
    log("SIGTERM received. Draining requests and shutting down")
    limit = time.monotonic() + _DRAIN_LIMIT_S
    quiet_since = time.monotonic()
    while time.monotonic() < limit and time.monotonic() - quiet_since < 0.5:
        time.sleep(0.05)
        if server.engine.busy:
            quiet_since = time.monotonic()
    server.shutdown()
    server.server_close()


def run(options: argparse.Namespace) -> None:
    config = read_model(Path(options.model_path))
    cards = take_cards(options)
    for card in cards:
        log(f"Init torch distributed begin. torch {torch.version.__version__}, {card.name}, sm {card.capability}, {card.uuid}")
    address = (options.host, options.port)
    try:
        server = EngineServer(address, make_engine(options, config, cards))
    except OSError as error:
        raise StartError(f"error while attempting to bind on address {address}: {error.strerror}") from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if not stop.wait(float(os.environ.get("BWLAB_START_DELAY") or 1.0)):
        server.engine.state = "ready"
        log("The server is fired up and ready to roll!")
        stop.wait()
    drain(server)


def main() -> int:
    flags = (Path(__file__).resolve().parent / "flags.txt").read_text(encoding="ascii")
    options = parse(flags, sys.argv[1:])
    try:
        run(options)
    except StartError as error:
        log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
