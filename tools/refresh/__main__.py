# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the measured tables of the knowledge base with a package index, and propose the difference as a diff.

Read are the newest SGLang releases (or those that are named), the kernel wheel and torch that each pins, and the GPU code inside
these. Metadata comes first; a wheel is fetched only when the tables and earlier runs do not know its hash, and is removed after it was
scanned. The index is the one that uv and pip would ask (UV_DEFAULT_INDEX, UV_INDEX_URL, PIP_INDEX_URL, pip's configuration).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge, _schema

from refresh import measure, tables
from refresh.client import Client, RefreshError, configured

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "plugins/plugin_utils/knowledge"
SAME, DIFFERENT, FAILED = 0, 1, 2


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/refresh_knowledge", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="SGLang releases; the newest when none is named")
    parser.add_argument("--newest", type=int, default=3, metavar="N", help="how many of the newest releases (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="change the files, beside showing the difference")
    parser.add_argument("--metadata-only", action="store_true", help="fetch no wheel: leave the GPU code of new wheels out")
    parser.add_argument(
        "--most-mib", type=int, default=6144, metavar="MIB", help="wheels of at most this size together (default: %(default)s)"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the knowledge base to compare with (default: this checkout's)")
    parser.add_argument("--cache", type=Path, default=None, help="where measurements are kept (default: the user's cache folder)")
    return parser.parse_args(given)


def cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("BLACKWELL_CACHE") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blackwell-inference"
    return Path(base) / "refresh"


def measured(
    client: Client, versions: list[str], newest: int, known: Mapping[str, Any], with_code: bool
) -> dict[str, dict[tuple[str, ...], Any]]:
    """Rows by table and key, of the releases and of what they pin."""
    sglang = measure.wheels(client, "sglang")
    found: dict[str, dict[tuple[str, ...], Any]] = {name: {} for name in ("releases", "kernels", "torch", "code")}
    for version in versions or measure.newest(sglang, newest):
        print(f"sglang {version}", file=sys.stderr)
        row = measure.release_row(client, sglang, version)
        found["releases"][(version,)] = row
        package, number, torch = row["pins"]["kernel"]["name"], row["pins"]["kernel"]["version"], row["pins"]["torch"]
        if (package, number) not in found["kernels"]:
            found["kernels"][(package, number)] = measure.kernel_row(client, measure.wheels(client, package), package, number)
        if (torch,) not in found["torch"]:
            found["torch"][(torch,)] = measure.torch_row(client, measure.wheels(client, "torch"), torch)
        for name, which in ((package, number), ("torch", torch)) if with_code else ():
            if (name, which) not in found["code"]:
                found["code"][(name, which)] = _code(client, name, which, found, known["code"])
    return found


def _code(client: Client, name: str, version: str, found: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The GPU code by machine, where there is any."""
    files = [wheel for wheel in measure.of_version(measure.wheels(client, name), version) if wheel.linux and wheel.pythons]
    there = known.get(name, {}).get(version, {})
    build = found["torch"][(version,)]["build"] if name == "torch" else None
    machines = [machine for machine in measure.MACHINES if any(machine == tag[0] for wheel in files for tag in wheel.linux)]
    rows = {}
    for machine in machines:
        if build is None or build[machine] != "cpu":
            print(f"  {name} {version} {machine}", file=sys.stderr)
            rows[machine] = measure.code_row(client, name, files, machine, there.get(machine))
    return rows


def proposals(texts: Mapping[str, str], known: Mapping[str, Any], found: Mapping[str, dict[tuple[str, ...], Any]]) -> dict[str, str]:
    """The text of each file with the rows that differ from it."""
    write = {"releases": tables.release, "kernels": tables.kernel, "torch": tables.torch_build, "code": tables.code}
    result = dict(texts)
    for table, rows in found.items():
        for key, row in rows.items():
            there: Any = known[table]
            for part in key:
                there = there.get(part, {})
            if there != row:
                package = key[0] if len(key) == 2 else None
                result[table] = tables.put(result[table], key[-1], write[table](key[-1], row), package)
    return result


def main(given: list[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    options = arguments(given)
    try:
        known = _knowledge.read_tables(options.folder)
        client = Client(configured(environ), options.cache or cache_folder(environ), options.most_mib << 20)
        found = measured(client, options.versions, options.newest, known, not options.metadata_only)
    except (RefreshError, _knowledge.KnowledgeError, OSError) as error:
        print(f"refresh_knowledge: {error}", file=sys.stderr)
        return FAILED
    print(f"{client.requests} requests, {client.fetched / (1 << 20):.1f} MiB", file=sys.stderr)
    texts = {name: (options.folder / _schema.FILES[name]).read_text(encoding="utf-8") for name in found}
    changed = {name: text for name, text in proposals(texts, known, found).items() if text != texts[name]}
    for name, text in changed.items():
        sys.stdout.write(tables.difference(f"plugins/plugin_utils/knowledge/{_schema.FILES[name]}", texts[name], text))
        if options.write:
            (options.folder / _schema.FILES[name]).write_text(text, encoding="utf-8")
    new = sorted({key[0] for key in found["releases"]} - set(known["releases"]))
    if new:
        print(
            f"New: {', '.join(new)}. Prove them before they are chosen unasked, and set as_of in policy.yml (docs/knowledge.md).",
            file=sys.stderr,
        )
    return SAME if options.write or not changed else DIFFERENT


if __name__ == "__main__":
    sys.exit(main())
