# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the model folder: real configuration, index and safetensors headers, and no weights.

The tensors' bytes are holes: the files have the sizes of the real ones and take a few hundred KiB of disk. So whoever
measures the model, counts its bytes or looks for a truncated file finds what is true of the real one.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

from .model_tensors import Shape, config, mtp_tensors, tensors

Mtp = Literal["absent", "unindexed", "indexed"]

_SHARD_BYTES = 4_000_000_000
_BF16 = 2


def tensor_bytes(shape: Shape) -> int:
    return math.prod(shape) * _BF16


def split_shards(shapes: dict[str, Shape]) -> list[dict[str, Shape]]:
    shards: list[dict[str, Shape]] = [{}]
    size = 0
    for name, shape in shapes.items():
        if shards[-1] and size + tensor_bytes(shape) > _SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += tensor_bytes(shape)
    return shards


def write_safetensors(path: Path, shapes: dict[str, Shape]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + tensor_bytes(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_weights(folder: Path, mtp: Mtp) -> None:
    shapes = tensors() | (mtp_tensors() if mtp == "indexed" else {})
    shards = split_shards(shapes)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(folder / name, shard)
        weight_map.update(dict.fromkeys(shard, name))
    total = sum(tensor_bytes(shape) for shape in shapes.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    if mtp == "unindexed":
        write_safetensors(folder / "mtp.safetensors", mtp_tensors())


def write_model(folder: Path, mtp: Mtp = "absent") -> None:
    """Writes the folder. ``mtp``: the head is not there, is in a file the index does not name, or is in the index."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config())
    _write_json(
        folder / "generation_config.json",
        {
            "bos_token_id": 248044,
            "do_sample": True,
            "eos_token_id": [248046, 248044],
            "pad_token_id": 248044,
            "temperature": 1.0,
            "top_k": 20,
            "top_p": 0.95,
        },
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "eos_token": "<|im_end|>",
            "model_max_length": 262144,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
        },
    )
    # Enough to be a tokenizer file by its form; the simulated engine counts words.
    _write_json(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}})
    _write_weights(folder, mtp)
