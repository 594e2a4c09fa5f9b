#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock, really install, import, compile and scan SGLang releases; write what was seen into the knowledge base.

usage: tools/prove_release [--python 3.13] [--no-write] VERSION...
Needs root and some 25 GB below the cache. Wheels come from UV_DEFAULT_INDEX, else from uv's own default. The stack is built
and checked by the collection's own code, in the root file system of the lab's container, whose Python is the one that is proven.
Exit status: 0 all proven, 1 one is not, 2 bad usage.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.module_utils import _fetch, _wheelhouse
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _knowledge, _locker, _resolver
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from bwlab import image, names

PROVEN = ROOT / "plugins" / "plugin_utils" / "knowledge" / "proven.yml"
FACTS = ROOT / "inventory" / "facts" / "rtx-pro-6000-x8.yml"
TARGETS = ("120", "120a", "120f")
# uv's own default, which is also asked for the wheels.
INDEX = "https://pypi.org/simple"
# Between them they bring out every flag that a plan may pass.
WISHES: tuple[Mapping[str, Any], ...] = (
    {},
    {"tensor_parallel": 2, "context_length": 32768, "max_running_requests": 8},
    {"speculative": "mtp"},
    {"mamba_strategy": "no_buffer"},
    {"mamba_strategy": "extra_buffer"},
)
# Unpacked wheels that a next release may share; beyond this they are dropped.
MOST_CACHED = 20 << 30


def plan_for(release: str, python: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    facts = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    facts["gpu"]["platform"]["pythons"] = {python: f"/usr/bin/python{python}"}
    facts["model"]["mtp"] |= {"indexed": True, "files": ["mtp.safetensors"], "usable": True, "reason": None}
    return _resolver.resolve(_knowledge.load(), facts["gpu"], facts["model"], {"sglang_version": release, **wish}, None)


def flags_for(release: str, python: str) -> list[str]:
    """Every flag that a plan of this release may pass."""
    args = [word for wish in WISHES for word in plan_for(release, python, wish)["launch"]["args"]]
    return sorted({word for word in args if word.startswith("--")})


def fetch(lock: Lock, wheels: Path, index: str) -> None:
    """What the lock names, and nothing else stays."""
    wheels.mkdir(parents=True, exist_ok=True)
    wanted = _wheelhouse.wanted_files([lock.text()], [], [])
    kept = {one.filename for one in wanted}
    for path in wheels.iterdir():
        if path.suffix == ".whl" and path.name not in kept:
            path.unlink()
    found = _wheelhouse.inspect(str(wheels), wanted)
    fetcher = _fetch.Fetcher(str(wheels), _fetch.opener(60), time.sleep, index_url=index, retries=5, threads=4)
    _wheelhouse.fill(str(wheels), found, lambda: fetcher)


def prepare(work: Path) -> Path:
    """The root file system of the lab's container, with the user that services run as."""
    tree = work / "root"
    if not (tree / "etc" / "prepared").exists():
        image.build()
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        image.unpack(image.template_tarball(), tree)
        subprocess.run(["chroot", str(tree), "useradd", "--system", "inference"], check=True)
        (tree / "etc" / "prepared").touch()
    for name in ("collection/ansible_collections/blackwell/inference", "var/lib/inference"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    return tree


ENTER = """
set -e
mount --bind "$2" "$1/var/lib/inference"
mount --bind "$3" "$1/collection/ansible_collections/blackwell/inference"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/collection \\
    "/usr/bin/python$4" /collection/ansible_collections/blackwell/inference/tools/proving/inside.py
"""


def inside(tree: Path, store: Path, python: str, question: dict[str, Any]) -> dict[str, Any]:
    """The mounts are in a namespace of their own and go with it."""
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(tree), str(store), str(ROOT), python]
    done = subprocess.run(argv, input=json.dumps(question), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the proof in the root file system ended with status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def failures(answer: dict[str, Any]) -> list[str]:
    found = [f"{check['name']}: found {check['found']}; wanted {check['wanted']}" for check in answer["checks"] if not check["ok"]]
    for target, result in answer["compiled"].items():
        if result["error"]:
            found.append(f"compile for {target}: {result['error']}")
        elif f"sm_{target}" not in result["code"]:
            found.append(f"compile for {target}: made {', '.join(result['code']) or 'no code'}")
    return found


def row(release: str, plan: dict[str, Any], answer: dict[str, Any], day: str) -> str:
    stack = plan["stack"]
    compiled = ", ".join(f'"{target}"' for target in answer["compiled"])
    return (
        f'  - {{release: "{release}", python: "{stack["python"]}", machine: {stack["extra"]["machine"]}, '
        f'as_of: "{stack["extra"]["as_of"][:10]}", day: "{day}", toolkit: "{stack["cuda_toolkit"]}", flags: {answer["flags"]},\n'
        f"     compiled: [{compiled}], served: [], result: ok}}\n"
    )


def insert(text: str, release: str, python: str, new: str) -> str:
    """proven.yml with the row, in the place of an earlier one of the same release and Python."""
    earlier = re.compile(rf'  - \{{release: "{re.escape(release)}", python: "{re.escape(python)}".*\n(?:     .*\n)*')
    return earlier.sub(lambda _match: new, text, count=1) if earlier.search(text) else text + new


def prove(release: str, python: str, work: Path, index: str, write: bool) -> bool:
    started = time.monotonic()
    plan = plan_for(release, python, {})
    extra = plan["stack"]["extra"]
    environ = _compile.environment(os.environ, index)
    lock = _locker.make(_compile.runner(900), _compile.find_uv(None), plan, environ)
    locked = time.monotonic()
    store = work / "store"
    fetch(lock, store / "wheels", index)
    fetched = time.monotonic()
    tree = prepare(work)
    shutil.copy2(_compile.find_uv(None), store / "uv")
    question = {
        "lock": lock.text(),
        "store": "/var/lib/inference",
        "uv": "/var/lib/inference/uv",
        "python": f"/usr/bin/python{python}",
        "capabilities": ["12.0"],
        "flags": flags_for(release, python),
        "exempt": extra["gpu_code_exempt"],
        "targets": list(TARGETS),
    }
    try:
        answer = inside(tree, store, python, question)
    finally:
        shutil.rmtree(store / "stacks", ignore_errors=True)
        size = sum(entry.stat().st_size for entry in (store / "cache").rglob("*") if entry.is_file() and not entry.is_symlink())
        if size > MOST_CACHED:
            shutil.rmtree(store / "cache", ignore_errors=True)
    wrong = failures(answer)
    times = f"lock {locked - started:.0f} s, fetch {fetched - locked:.0f} s, build and prove {time.monotonic() - fetched:.0f} s"
    sizes = f"{len(lock.requirements)} distributions, {answer['flags']} flags"
    print(f"{release} on {python}: {sizes}, {times}: {'NOT PROVEN' if wrong else 'ok'}")
    for line in wrong:
        print(f"  - {line}")
    if not wrong and write:
        text = PROVEN.read_text(encoding="utf-8")
        PROVEN.write_text(insert(text, release, python, row(release, plan, answer, time.strftime("%Y-%m-%d"))), encoding="utf-8")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/prove_release", description="Prove SGLang releases and record it in the knowledge base.")
    parser.add_argument("releases", nargs="+", metavar="VERSION")
    parser.add_argument("--python", default="3.13", help="the Python that is proven; the lab's container must have it")
    parser.add_argument("--no-write", action="store_true", help="leave the knowledge base as it is")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("found: another user; wanted: root, who alone can enter a root file system")
    known = _knowledge.load().releases
    unknown = [release for release in options.releases if release not in known]
    if unknown:
        parser.error(f"found: {', '.join(unknown)}, not in releases.yml; wanted: a release of the knowledge base (tools/refresh_knowledge)")
    work = names.cache_dir() / "prove"
    work.mkdir(parents=True, exist_ok=True)
    # Two runs at once would remove each other's wheels: the second one waits.
    alone = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(alone, fcntl.LOCK_EX)
    index = os.environ.get("UV_DEFAULT_INDEX") or INDEX
    proven = True
    for release in options.releases:
        try:
            proven = prove(release, options.python, work, index, not options.no_write) and proven
        except (PlanError, _compile.LockingError, Refusal, RuntimeError) as error:
            print(f"{release} on {options.python}: NOT PROVEN\n  - {error}")
            proven = False
        sys.stdout.flush()
    return 0 if proven else 1


if __name__ == "__main__":
    sys.exit(main())
