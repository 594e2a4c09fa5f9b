# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file: one wheel with its hash for every distribution of a stack.

It is a requirements file that pip and uv read as it stands; what only this collection reads stands in comments.
Parsing is strict: what is not exactly of this shape is refused with the number of its line.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

FIRST_LINE = "# blackwell.inference lock 1"
ANY = "any"

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"
    r" --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<filename>[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl) (?P<size>[0-9]{1,15})"
)
_HEADER = re.compile(r"# (?P<key>python|platform|stack|as-of) (?P<value>\S+)")
_VALUE = {
    "python": re.compile(r"any|3\.[0-9]{1,2}"),
    "platform": re.compile(r"any|[a-z0-9_]{1,32}-manylinux_[0-9]{1,2}_[0-9]{1,3}"),
    "stack": re.compile(r"[0-9a-f]{8,64}"),
    "as-of": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"),
}


class LockError(ValueError):
    """A lock that cannot be used; the message names the line."""


@dataclass(frozen=True)
class Requirement:
    """One distribution and the one wheel of it that the platform gets."""

    name: str
    version: str
    sha256: str
    filename: str
    size: int

    def pin(self) -> str:
        """The line without its trailing comment: what counts for the lock's id."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    def line(self) -> str:
        return f"{self.pin()}  # {self.filename} {self.size}"


@dataclass(frozen=True)
class Lock:
    python: str
    platform: str
    stack_id: str | None
    as_of: str | None
    requirements: list[Requirement] = field(default_factory=list)
    toolkit: list[Requirement] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Names the closure: interpreter, platform and pins, and nothing that may differ between two equal closures."""
        digest = hashlib.sha256(f"python {self.python}\nplatform {self.platform}\n".encode())
        for requirement in self.requirements:
            digest.update(f"{requirement.pin()}\n".encode())
        for requirement in self.toolkit:
            digest.update(f"#toolkit {requirement.pin()}\n".encode())
        return digest.hexdigest()[:16]

    def files(self) -> list[Requirement]:
        """Every wheel that must lie in a wheelhouse, the compile toolkit's too."""
        return self.requirements + self.toolkit

    def text(self) -> str:
        """The file's bytes: sorted, so that the same lock is the same text."""
        lines = [FIRST_LINE, f"# python {self.python}", f"# platform {self.platform}"]
        lines += [f"# stack {self.stack_id}"] if self.stack_id else []
        lines += [f"# as-of {self.as_of}"] if self.as_of else []
        lines += [requirement.line() for requirement in self.requirements]
        lines += [f"#toolkit {requirement.line()}" for requirement in self.toolkit]
        return "\n".join(lines) + "\n"


def normalized(name: str) -> str:
    """A project's one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirement(text: str, number: int) -> Requirement:
    found = _LINE.fullmatch(text)
    if not found:
        raise LockError(
            f"line {number} of the lock is {text[:120]!r}; wanted: name==version --hash=sha256:<64 hex digits>"
            "  # <wheel's file name> <bytes>. Make the lock again with stack_lock; it is not written by hand"
        )
    parts = found.groupdict()
    if parts["name"] != normalized(parts["name"]):
        raise LockError(f"line {number} of the lock names {parts['name']!r}; wanted: {normalized(parts['name'])!r}")
    if normalized(parts["filename"].split("-")[0]) != parts["name"]:
        raise LockError(f"line {number} of the lock pins {parts['name']} with another project's file {parts['filename']}")
    return Requirement(parts["name"], parts["version"], parts["sha256"], parts["filename"], int(parts["size"]))


def _add(listed: list[Requirement], new: Requirement, number: int, kind: str) -> None:
    if listed and new.name <= listed[-1].name:
        raise LockError(f"line {number} of the lock: {kind} {new.name} follows {listed[-1].name}; wanted: sorted by name, each once")
    listed.append(new)


def parse(text: Any) -> Lock:
    """Read a lock; raise LockError, which names the line, for anything else."""
    if not isinstance(text, str):
        raise LockError(f"the lock is of type {type(text).__name__}; wanted: the text of a lock file")
    lines = text.split("\n")
    if lines[0] != FIRST_LINE:
        raise LockError(f"line 1 of the lock is {lines[0][:120]!r}; wanted: {FIRST_LINE!r}. Is this another file?")
    if lines[-1] != "":
        raise LockError(f"line {len(lines)} of the lock does not end in a newline: the file is cut off. Copy it again")
    header: dict[str, str] = {}
    requirements: list[Requirement] = []
    toolkit: list[Requirement] = []
    for number, line in enumerate(lines[1:-1], start=2):
        if line.startswith("# "):
            found = _HEADER.fullmatch(line)
            if not found or not _VALUE[found["key"]].fullmatch(found["value"]):
                raise LockError(f"line {number} of the lock is {line[:120]!r}; wanted: python, platform, stack or as-of and a value")
            if found["key"] in header or requirements or toolkit:
                raise LockError(f"line {number} of the lock: {found['key']} stands twice or after the first requirement")
            header[found["key"]] = found["value"]
        elif line.startswith("#toolkit "):
            _add(toolkit, _requirement(line[len("#toolkit ") :], number), number, "toolkit part")
        elif toolkit:
            raise LockError(f"line {number} of the lock is {line[:120]!r}; wanted: only #toolkit lines after the first of them")
        else:
            _add(requirements, _requirement(line, number), number, "requirement")
    for key in ("python", "platform"):
        if key not in header:
            raise LockError(f"the lock has no line '# {key} ...': it is not complete. Make it again with stack_lock")
    if not requirements:
        raise LockError("the lock holds no requirement: it is not complete. Make it again with stack_lock")
    return Lock(header["python"], header["platform"], header.get("stack"), header.get("as-of"), requirements, toolkit)
