# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side: the resolver and the lock."""

from __future__ import annotations

import copy
import itertools
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import index as served
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _knowledge, _locker
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

from bench.table import Row
from bench.timing import alternate, peak_mb, seconds

FACTS = Path(__file__).resolve().parents[2] / "inventory/facts/rtx-pro-6000-x8.yml"
HOSTS = 1000
# Capability with the shared memory of a block on it; the older driver leaves only releases for CUDA 12, the longer search.
CAPABILITIES = (("9.0", 232448), ("10.0", 232448), ("12.0", 101376))
DRIVERS = (("580.126.09", "13.0"), ("570.172.08", "12.8"))
CARDS = (1, 8)


def reference() -> dict[str, Any]:
    facts: dict[str, Any] = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    return facts


def fleet(count: int) -> list[dict[str, Any]]:
    """Facts of so many hosts of twelve classes; no two hosts are equal."""
    base = reference()["gpu"]
    classes = list(itertools.product(CAPABILITIES, DRIVERS, CARDS))
    hosts = []
    for number in range(count):
        (capability, shared), (driver, cuda), cards = classes[number % len(classes)]
        gpu = copy.deepcopy(base)
        gpu["driver"].update(version=driver, library_version=driver, cuda=cuda)
        gpu["devices"] = gpu["devices"][:cards]
        gpu.update(count=cards, compute_capabilities=[capability])
        gpu["container"]["vmid"] = 100 + number
        for device in gpu["devices"]:
            device.update(compute_capability=capability, sm=f"sm_{capability.replace('.', '')}", shared_memory_per_block_optin=shared)
            device["uuid"] = f"GPU-{number:08x}-0000-4000-8000-{device['index']:012x}"
        hosts.append(gpu)
    return hosts


def load() -> _knowledge.Knowledge:
    """As _knowledge.load does the first time."""
    return _knowledge.build(_knowledge.read_tables())


def plan_all(knowledge: _knowledge.Knowledge, hosts: list[dict[str, Any]], model: dict[str, Any]) -> list[dict[str, Any]]:
    """All plans are kept, as in a run over so many hosts: they count in the peak."""
    return [resolve(knowledge, gpu, model) for gpu in hosts]


def plan_fleet() -> None:
    plan_all(load(), fleet(HOSTS), reference()["model"])


def resolver() -> list[Row]:
    knowledge, facts, hosts = load(), reference(), fleet(HOSTS)
    model = facts["model"]
    one = alternate({"plan": lambda: resolve(knowledge, facts["gpu"], model), "load": load}, 15)
    many = alternate(
        {"fleet": lambda: plan_all(knowledge, hosts, model), "site": lambda: plan_all(knowledge, [facts["gpu"]] * HOSTS, model)}, 3
    )
    again = f"the reference site's plan {HOSTS:,} times"
    classes, rate = f"plans for {HOSTS:,} hosts of 12 classes", f"{HOSTS / many['fleet']:.0f} plans/s"
    return [
        Row("one plan for the reference site", 1e3 * one["plan"], "ms", 1e3 * one["load"], "loading the knowledge base", goal="50 ms"),
        Row(classes, many["fleet"], "s", many["site"], again, peak_mb(plan_fleet), "3 s, 200 MB", rate),
    ]


def lock() -> list[Row]:
    """A lock as stack_lock makes it, from a warm cache of uv and an index of a dozen empty wheels on this machine."""
    facts = reference()
    plan = resolve(load(), facts["gpu"], facts["model"])
    run, uv = _compile.runner(60), _compile.find_uv(None)
    inside: list[float] = []

    def timed(argv: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
        begin = time.perf_counter()
        code, out, err = run(argv, environ)
        inside[-1] += time.perf_counter() - begin
        return code, out, err

    whole = []
    with served.stocked() as index, tempfile.TemporaryDirectory(prefix="bench-") as cache:
        environ = _compile.environment(os.environ, index.url) | {"UV_CACHE_DIR": cache}
        for _ in range(8):
            inside.append(0.0)
            whole.append(seconds(lambda: _locker.make(timed, uv, plan, environ)))
    # The first one filled the cache.
    return [Row("one lock, warm cache", median(whole[1:]), "s", median(inside[1:]), "uv itself in the same runs", goal="5 s")]
