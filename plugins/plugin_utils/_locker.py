# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to a lock: the closure that uv finds, cut down to the one wheel of each distribution that the target gets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import tomllib
from ansible_collections.blackwell.inference.plugins.module_utils._lock import ANY, Lock, Requirement, normalized
from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _packaging
from ansible_collections.blackwell.inference.plugins.plugin_utils._compile import LockingError, Question, Run

_ALIASES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def tags(python: str, platform: str) -> dict[_packaging.Tag, int]:
    """Every tag that the target accepts, with its rank: 0 is the best."""
    machine, _dash, manylinux = platform.partition("-manylinux_2_")
    platforms = []
    for minor in range(int(manylinux), 4, -1):
        if minor < 17 and machine != "x86_64":
            break
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in _ALIASES:
            platforms.append(f"{_ALIASES[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    version = (3, int(python.partition(".")[2]))
    interpreter = f"cp3{version[1]}"
    ordered = [*_packaging.cpython_tags(version, [interpreter], platforms), *_packaging.compatible_tags(version, interpreter, platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def _filename(wheel: Mapping[str, Any]) -> str:
    return str(wheel.get("name") or unquote(PurePosixPath(urlsplit(str(wheel.get("url", ""))).path).name))


def _ranked(name: str, wheels: list[Mapping[str, Any]], accepted: Mapping[_packaging.Tag, int]) -> list[tuple[int, str, Mapping[str, Any]]]:
    found = []
    for wheel in wheels:
        filename = _filename(wheel)
        try:
            _project, _version, build, offered = _packaging.parse_wheel_filename(filename)
        except _packaging.InvalidWheelFilename as error:
            raise LockingError(f"The index offers {filename} for {name}; wanted: a wheel's file name. {error}") from error
        ranks = [accepted[tag] for tag in offered if tag in accepted]
        if ranks:
            # Among equal tags the higher build number counts, as for every installer.
            found.append((min(ranks), -(build[0] if build else 0), filename, wheel))
    return [(rank, filename, wheel) for rank, _build, filename, wheel in sorted(found, key=lambda entry: entry[:3])]


def requirements(pylock: str, accepted: Mapping[_packaging.Tag, int]) -> list[Requirement]:
    """One requirement for each distribution of a pylock.toml, sorted by name."""
    found = []
    for package in tomllib.loads(pylock).get("packages", []):
        name = normalized(package["name"])
        ranked = _ranked(name, package.get("wheels", []), accepted)
        if not ranked:
            raise LockingError(
                f"{name} {package.get('version', '')} has no wheel for the target; wanted: one. "
                "Nothing is built while installing: choose another release, or override that package in the knowledge base."
            )
        _rank, filename, wheel = ranked[0]
        sha256 = wheel.get("hashes", {}).get("sha256")
        if not sha256 or not wheel.get("size"):
            raise LockingError(
                f"The index gives no {'size' if sha256 else 'sha256'} of {filename}; wanted: both (PEP 691 and 700). "
                "Use an index that serves them, or bring an existing lock."
            )
        found.append(Requirement(name, str(package["version"]), sha256, filename, int(wheel["size"])))
    return sorted(found, key=lambda requirement: requirement.name)


def differences(lock: Lock, plan: Mapping[str, Any]) -> list[str]:
    """Where a lock is not of this plan: the plan was made for these versions, and a closure with others is another plan."""
    stack = plan["stack"]
    extra = stack["extra"]
    there = {requirement.name: requirement.version for requirement in lock.requirements}
    there |= {f"{part.name} of the toolkit": part.version for part in lock.toolkit}
    pairs = [
        ("Python", lock.python, stack["python"]),
        ("platform", lock.platform, _compile.platform(extra["machine"], extra["glibc"])),
        ("as-of", lock.as_of, extra["as_of"]),
    ]
    wanted = {
        "sglang": stack["sglang"],
        "torch": stack["torch"],
        normalized(stack["sgl_kernel"]["name"]): stack["sgl_kernel"]["version"],
        "flashinfer-python": stack["flashinfer"],
    }
    for pin in extra["toolkit"]:
        name, _equals, version = pin.partition("==")
        wanted[f"{normalized(name)} of the toolkit"] = version
    pairs += [(name, there.get(name, "is absent"), version) for name, version in wanted.items()]
    return [f"{name} {found}, wanted {version}" for name, found, version in pairs if found != version]


def make(run: Run, uv: str, plan: Mapping[str, Any], environ: dict[str, str]) -> Lock:
    """Ask for the environment and, apart from it, for the compile toolkit."""
    stack = plan["stack"]
    extra = stack["extra"]
    platform = _compile.platform(extra["machine"], extra["glibc"])
    accepted = tags(stack["python"], platform)
    question = Question([f"sglang=={stack['sglang']}"], stack["python"], platform, extra["as_of"], extra["constraints"], extra["overrides"])
    found = requirements(_compile.ask(run, uv, question, environ), accepted)
    parts = Question(extra["toolkit"], stack["python"], platform, extra["toolkit_as_of"], dependencies=False)
    toolkit = requirements(_compile.ask(run, uv, parts, environ), accepted)
    lock = Lock(stack["python"], platform, plan["stack_id"], extra["as_of"], found, toolkit)
    differing = differences(lock, plan)
    if differing:
        raise LockingError(
            f"The index's own closure of SGLang {stack['sglang']} does not hold the plan's pins: {'; '.join(differing)}. "
            "The release's metadata on that index differs from the knowledge base: use the index that the tables were made from."
        )
    return lock


def make_fixed(
    run: Run, uv: str, wanted: list[str], target: tuple[str, str], as_of: str, environ: dict[str, str], anywhere: bool = False
) -> Lock:
    """A small lock that is shipped with a role. `anywhere` says that its wheels fit every Python and platform in use."""
    python, platform = target
    found = requirements(_compile.ask(run, uv, Question(wanted, python, platform, as_of), environ), tags(python, platform))
    return Lock(ANY if anywhere else python, ANY if anywhere else platform, None, None, found, [])
