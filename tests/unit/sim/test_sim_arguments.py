# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from sim import engine
from sim.engine.arguments import build_parser, parse

FOLDER = Path(engine.__file__).parent
RELEASES = ("0.5.23", "0.5.12.post1")


def flags(release: str) -> str:
    return (FOLDER / f"flags-{release}.txt").read_text(encoding="ascii")


@pytest.mark.parametrize(("release", "count"), [("0.5.23", 561), ("0.5.12.post1", 401)])
def test_help_lists_every_flag(release: str, count: int) -> None:
    words = set(build_parser(flags(release)).format_help().replace(",", " ").split())
    listed = {line.split()[0] for line in flags(release).splitlines() if line.startswith("--")} | {"--help"}
    assert listed <= words
    assert len(listed) == count


@pytest.mark.parametrize("release", RELEASES)
def test_every_flag_is_accepted_in_its_own_way(release: str) -> None:
    parser = build_parser(flags(release))
    for line in flags(release).splitlines():
        if not line.startswith("--"):
            continue
        name, kind, *choices = line.split()
        value = choices[0].split(",")[0] if choices else "1"
        given = [name] if kind in ("switch", "optional") else [name, value]
        parser.parse_args(["--model-path", "/m", *given])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model-path", "/m", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--model-path", "/m", "--attention-backend", "fa9"], "invalid choice: 'fa9'"),
        (["--model-path", "/m", "--port", "many"], "invalid int value: 'many'"),
        (["--model-path", "/m", "--enable-metrics", "yes"], "unrecognized arguments: yes"),
        (["--port", "1"], "required: --model-path/--model"),
    ],
)
def test_refusals_are_argparse_s_own(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(flags("0.5.23"), arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_flag_of_the_newer_release_only() -> None:
    with pytest.raises(SystemExit):
        parse(flags("0.5.12.post1"), ["--model-path", "/m", "--bf16-gemm-backend", "auto"])
    assert parse(flags("0.5.23"), ["--model-path", "/m", "--bf16-gemm-backend", "auto"]).bf16_gemm_backend == "auto"


def test_aliases_and_defaults() -> None:
    options = parse(flags("0.5.23"), ["--model", "/m", "--tp", "2"])
    assert (options.model_path, options.tp_size, options.port, options.host) == ("/m", 2, 30000, "127.0.0.1")
