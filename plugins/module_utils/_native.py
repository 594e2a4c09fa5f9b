# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's libraries by ctypes: found, loaded and called, whichever functions a release of them has."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from ctypes import byref, c_uint
from typing import Any

# The loader's own search first; then where installers put the libraries without telling it.
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia/current",
    "/usr/local/nvidia/lib64",
)


class Library:
    """A shared library whose functions may be missing."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        # What was answered other than success, by function: for telling a lost card from one that lacks a feature.
        self.refusals: dict[str, int] = {}

    def call(self, name: str, *arguments: Any) -> int | None:
        """The function's status, or None when the library does not have it."""
        function = getattr(self._handle, name, None)
        if function is None:
            return None
        status = int(function(*arguments))
        if status:
            self.refusals[name] = status
        return status

    def value(self, kind: Any, names: tuple[str, ...], *arguments: Any) -> Any:
        """What the first of `names` that answers stores behind its last argument, or None."""
        found = kind()
        for name in names:
            if self.call(name, *arguments, byref(found)) == 0:
                return found.value
        return None

    def pair(self, kind: Any, name: str, *arguments: Any) -> tuple[int, int] | None:
        first, second = kind(), kind()
        return (first.value, second.value) if self.call(name, *arguments, byref(first), byref(second)) == 0 else None

    def text(self, name: str, *arguments: Any, size: int = 96) -> str | None:
        buffer = ctypes.create_string_buffer(size)
        if self.call(name, *arguments, buffer, c_uint(size)) != 0:
            return None
        return buffer.value.decode("utf-8", "replace") or None

    def word(self, name: str, status: int) -> str | None:
        """The library's own word for a status."""
        function = getattr(self._handle, name, None)
        if function is None:
            return None
        function.restype = ctypes.c_char_p
        said: bytes | None = function(status)
        return said.decode("utf-8", "replace") if said else None


def load(name: str) -> tuple[Any | None, str | None]:
    """(library, None), (None, why the file that is there is no library) or (None, None) when there is none."""
    broken = None
    for path in (name, *(os.path.join(folder, name) for folder in FOLDERS)):
        if path != name and not os.path.exists(path):
            continue
        try:
            return ctypes.CDLL(path), None
        except OSError as refused:
            reason = str(refused)
            # The loader says the same of a library that another one needs, then with that one's name.
            if not (reason.startswith(f"{name}:") and "No such file" in reason):
                broken = reason
    return None, broken


def loaded_path(name: str) -> str | None:
    """The file behind a loaded library; the driver's version is in its name even when nothing else answers."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").rpartition(" ")[2]
            if os.path.basename(path).startswith(name):
                return os.path.realpath(path)
    return None


def version_in(path: str | None) -> str | None:
    match = re.search(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", path or "")
    return match.group(1) if match else None


def kernel_address(text: str) -> str | None:
    """A PCI address as /sys and /proc write it; NVML pads the domain to 8 digits, and some domains need more than 4."""
    match = re.fullmatch(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", text)
    return f"{int(match.group(1), 16):04x}:{match.group(2).lower()}" if match else None


def capability(version: tuple[int, int] | None) -> str | None:
    """"12.0" of (12, 0); what no GPU can have is no answer."""
    if version is None or not (0 < version[0] < 100 and 0 <= version[1] < 10):
        return None
    return f"{version[0]}.{version[1]}"
