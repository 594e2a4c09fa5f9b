#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures what the design promises to be cheap, as ratios in one run, and writes the table of docs/benchmarks.md.

usage: run.py [--json] [--no-write] [--tree FOLDER] [--cuobjdump FILE] [MEASURE...]
measures: resolver scanner model gpu lock connection (all, when none is named; the table says which were left out)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# The lab's model and the unit tests' makers of binaries and of an index serve here too; none of them is installed.
sys.path[:0] = [str(TESTS), *(str(TESTS / name) for name in ("lab", "unit/plugins/module_utils", "unit/plugins/plugin_utils"))]

from bench import connecting, planning, probing, reading
from bench.table import MarkerError, Row, insert, render

DOCUMENT = TESTS.parent / "docs" / "benchmarks.md"
MEASURES = ("resolver", "scanner", "model", "gpu", "lock", "connection")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure ratios and write the table of docs/benchmarks.md.")
    # Not choices=: argparse would refuse the empty list.
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"{', '.join(MEASURES)}; all when none is named")
    parser.add_argument("--json", action="store_true", help="the rows as JSON on standard output, not the table")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--tree", type=Path, help="real libraries to scan instead of the lab's kernel wheel")
    parser.add_argument("--cuobjdump", help="the cuobjdump to compare with (package nvidia-cuda-cuobjdump); else the one on the PATH")
    options = parser.parse_args()
    unknown = sorted(set(options.measures) - set(MEASURES))
    if unknown:
        parser.error(f"found the measures {', '.join(unknown)}; wanted: {', '.join(MEASURES)}")
    if options.tree and not options.tree.is_dir():
        parser.error("--tree names no folder; wanted: a folder with shared objects below it")
    if options.cuobjdump and not os.access(options.cuobjdump, os.X_OK):
        parser.error("--cuobjdump names no executable; wanted: cuobjdump")
    return options


def main() -> int:
    options = arguments()
    functions: dict[str, Callable[[], list[Row]]] = {
        "resolver": planning.resolver,
        "scanner": lambda: reading.scanner(options.tree, options.cuobjdump),
        "model": reading.model,
        "gpu": probing.gpu,
        "lock": planning.lock,
        "connection": connecting.connection,
    }
    rows: list[Row] = []
    for name in MEASURES:
        if options.measures and name not in options.measures:
            rows.append(Row(name, note="left out of this run"))
            continue
        print(f"bench: {name}", file=sys.stderr, flush=True)
        rows += functions[name]()
    day, cpus = time.strftime("%Y-%m-%d"), len(os.sched_getaffinity(0))
    block = render(rows, day, cpus)
    print(json.dumps({"date": day, "cpus": cpus, "rows": [row.as_json() for row in rows]}, indent=2) if options.json else block)
    if not options.no_write:
        try:
            DOCUMENT.write_text(insert(DOCUMENT.read_text(encoding="utf-8"), block), encoding="utf-8")
        except (OSError, MarkerError) as error:
            print(f"bench: docs/benchmarks.md was not written: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
