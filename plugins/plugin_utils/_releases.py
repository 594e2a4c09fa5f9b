# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tables say of each release, put together once when they are read: nothing of it depends on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Rule, Standing, in_range, standing, version

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Release:
    name: str
    pins: Row
    torch: Row
    # Code inside the wheels by machine; a machine that is not there was not looked at.
    kernel_code: Mapping[str, Row]
    torch_code: Mapping[str, Row]
    # The torch that the kernel wheel itself says it was built for.
    kernel_torch: str | None
    uploaded: date
    age_days: int
    pythons: tuple[str, ...]
    machines: tuple[str, ...]
    glibc: str
    fields: Mapping[str, Any]
    rules: list[Standing]
    proven: list[Row]


def _pythons(row: Row, torch: Row, kernel: Row) -> tuple[str, ...]:
    """Those for which the release, its torch and its kernel wheel all have a wheel."""
    wheels = row["wheels"]
    offered = torch["pythons"] if wheels == "any" else [name for name in torch["pythons"] if name in wheels["pythons"]]
    return tuple(name for name in offered if in_range(name, row["requires_python"]) and version(name) >= version(kernel["python"]))


def put_together(tables: Mapping[str, Any], rules: list[Rule]) -> dict[str, Release]:
    """Every release, newest first."""
    today = date.fromisoformat(tables["policy"]["as_of"])
    found = {}
    for name in sorted(tables["releases"], key=version, reverse=True):
        row = tables["releases"][name]
        pins = row["pins"]
        package, number = pins["kernel"]["name"], pins["kernel"]["version"]
        torch, kernel = tables["torch"][pins["torch"]], tables["kernels"][package][number]
        wheels = {} if row["wheels"] == "any" else row["wheels"]
        uploaded = date.fromisoformat(row["upload"][:10])
        fields = {
            "sglang": name,
            "torch": pins["torch"],
            "kernel": f"{package} {number}",
            "kernel_name": package,
            "kernel_version": number,
            "flashinfer": pins["flashinfer"],
            "cuda_major": torch["cuda_major"],
        }
        found[name] = Release(
            name=name,
            pins=pins,
            torch=torch,
            kernel_code=tables["code"].get(package, {}).get(number, {}),
            torch_code=tables["code"].get("torch", {}).get(pins["torch"], {}),
            kernel_torch=kernel["torch"],
            uploaded=uploaded,
            age_days=(today - uploaded).days,
            pythons=_pythons(row, torch, kernel),
            machines=tuple(machine for machine in kernel["machines"] if machine in wheels.get("machines", [machine])),
            glibc=max((wheels.get("glibc", "2.5"), torch["glibc"], kernel["glibc"]), key=version),
            fields=fields,
            rules=standing(rules, fields),
            proven=[entry for entry in tables["proven"] if entry["release"] == name and entry["result"] == "ok"],
        )
    return found
