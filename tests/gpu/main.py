# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that can be tried on a real GPU: the facts on the host, then in real LXC containers, and what they cost.

Needs root, Python 3.11.4 or newer, and the folder .gpu, which "make gpu-bundle" makes on a machine with network. Needs neither a
network nor any program of LXC, systemd or Ansible on this machine. Where OUT names a folder, the results are written there too.
Exit status: 0 all equal, 1 something differs or failed, 77 no GPU was tested.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tarfile
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import containers
import measure
from facts import check_host, has_gpu
from report import SKIPPED, Report
from room import Room, RoomError, left_behind
from trial import Trial, packages_of_torch

CHECKOUT = Path(__file__).resolve().parents[2]
BUNDLE = CHECKOUT / ".gpu"
ARCHIVES = ("root.tar.xz", "controller.tar.xz")
SHOWN = 4000
DOCUMENT = CHECKOUT / "docs" / "benchmarks.md"


class Results:
    """What is kept: in the folder that OUT names, when it does."""

    def __init__(self) -> None:
        self._folder = Path(os.environ["OUT"]) if os.environ.get("OUT") else None

    def keep(self, name: str, text: str) -> None:
        if self._folder is not None:
            (self._folder / name).write_text(text, encoding="utf-8")

    def keep_facts(self, name: str, facts: dict[str, Any]) -> None:
        self.keep(name, json.dumps(facts, indent=1) + "\n")


def obstacle(bundle: Path, root: bool) -> str | None:
    """What is missing here before anything can be tried."""
    if not root:
        return "found: a user other than root; wanted: root, for namespaces and containers; do: the same with sudo"
    if not hasattr(tarfile, "data_filter"):
        return f"found: Python {sys.version.split()[0]}; wanted: 3.11.4 or newer; do: run tests/gpu/main.py with such a one"
    missing = [name for name in ARCHIVES if not (bundle / name).exists()]
    if missing:
        found = f"found: no {' and no '.join(missing)} in .gpu"
        return f"{found}; wanted: the bundle; do: make gpu-bundle where there is a network, and bring .gpu along"
    return None


def interrupted(number: int, _frame: object) -> NoReturn:
    # Leaves every "with" on the way, which stops the containers and removes what was made.
    sys.exit(128 + number)


def try_containers(report: Report, results: Results, torch: dict[str, Any] | None, gpu: bool) -> None:
    report.begin("containers")
    with Room(BUNDLE / "root.tar.xz") as room:
        packages = packages_of_torch() if gpu else None
        trial = Trial(room, BUNDLE / "controller.tar.xz", packages)
        if not gpu:
            containers.rehearse(report, trial)
            return
        if packages is None:
            report.not_tried("stack_facts on PyTorch's libraries", "no PyTorch here; a small folder stood in")
        results.keep_facts("facts_container.json", containers.check_gpus(report, trial, torch))


class Step:
    """Says how long a part took. What goes wrong in it is kept: the parts after it are tried all the same."""

    def __init__(self, report: Report, name: str) -> None:
        self._report = report
        self._name = name
        self._started = time.monotonic()

    def __enter__(self) -> None:
        print(f"== {self._name}", flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> bool:
        print(f"== {self._name}: {time.monotonic() - self._started:.0f} s", flush=True)
        if not isinstance(error, Exception):
            return False
        said = str(error) if isinstance(error, RoomError) else "".join(traceback.format_exception(error))
        self._report.failures.append(f"{self._name}: {said[-SHOWN:]}")
        return True


def try_all(report: Report, results: Results) -> str:
    """Returns what it was tried on."""
    on = "a GPU"
    host: dict[str, Any] | None = None
    torch: dict[str, Any] | None = None
    with Step(report, "host"):
        host, torch = check_host(report)
        results.keep_facts("facts_host.json", host)
        on = f"{host['count']} x {host['devices'][0]['name']}, driver {host['driver']['version']}"
    with Step(report, "containers"):
        try_containers(report, results, torch, gpu=True)
    if host is not None:
        with Step(report, "measure"):
            table = measure.table(host["devices"][0]["name"], host["driver"]["version"], torch is not None)
            print(table, flush=True)
            text = measure.inserted(DOCUMENT.read_text(encoding="utf-8"), table)
            DOCUMENT.write_text(text, encoding="utf-8")
            results.keep("benchmarks.md", text)
    return on


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="the containers without a GPU: tries this test, not the facts of a card")
    rehearsal: bool = parser.parse_args().rehearse
    if not rehearsal and not has_gpu():
        print("SKIPPED: no NVIDIA GPU here (no nvidia-smi or no /dev/nvidiactl); nothing was tested")
        return SKIPPED
    stopped = obstacle(BUNDLE, os.geteuid() == 0)
    if stopped:
        print(f"FAILED: {stopped}")
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    report, results = Report(), Results()
    started = time.monotonic()
    on = "no GPU"
    if rehearsal:
        with Step(report, "containers"):
            try_containers(report, results, None, gpu=False)
    else:
        on = try_all(report, results)
    report.begin("left behind")
    report.compare("folders, control groups and mounts", left_behind(), [], "the test")
    results.keep("comparison.txt", report.everything())
    print(report.table())
    status = report.status()
    verdict = "FAILED" if status else "REHEARSAL, no GPU was tested" if rehearsal else "PASSED"
    print(f"{verdict}: {report.summary(on)}; {time.monotonic() - started:.0f} s")
    return status or (SKIPPED if rehearsal else 0)


if __name__ == "__main__":
    sys.exit(main())
