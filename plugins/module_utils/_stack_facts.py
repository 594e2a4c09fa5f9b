# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a stack folder or virtual environment holds. Nothing of it is imported."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._elf import ElfError, FileReader
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import printable, scan_tree
from ansible_collections.blackwell.inference.plugins.module_utils._lock import normalized
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning

NVCC_SECONDS = 10
MAX_ANSWER = 1 << 16
MAX_TEXT = 1 << 20
# One name says enough; a list of forty hides it.
SHOWN = 3


def describe(path: str, service_path: str) -> dict[str, Any]:
    path = os.path.realpath(path)
    files = scan_tree(path)
    majors = {name: entry["cuda_major"] for name, entry in files.items() if entry["cuda_major"]}
    problems = [_unread(name, entry["problem"]) for name, entry in files.items() if entry["problem"]] + mixed_cuda(majors)
    found = distributions(site_packages(path), problems)
    if not found:
        problems.append(
            error(
                "no_distributions",
                f"no distribution below {printable(path)}",
                "a virtual environment",
                "correct path, or build it",
            )
        )
    coded = {name: entry for name, entry in files.items() if entry["code"] or entry["units"]}
    return {
        "path": printable(path),
        "lock_id": lock_id(path),
        "distributions": found,
        "cuda_major": majors,
        "code": {name: entry["code"] for name, entry in coded.items()},
        "units": {name: entry["units"] for name, entry in coded.items()},
        "toolkit": toolkit(path, service_path, problems),
        "problems": problems,
    }


def _unread(name: str, why: str) -> Problem:
    if name.endswith("/"):
        return error("not_scanned", f"{name}: {why}", "every folder listed", "run as a user who may read it, or correct path")
    return error("binary_damaged", f"{name}: {why}", "a whole shared object of one CUDA major", "build the stack again")


def mixed_cuda(majors: dict[str, int]) -> list[Problem]:
    """A warning, since wheels bring hooks for several majors and load one; the proof knows which may be there."""
    names: dict[int, list[str]] = {}
    for name, major in majors.items():
        names.setdefault(major, []).append(name)
    if len(names) < 2:
        return []
    parts = []
    for major, found in sorted(names.items()):
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        parts.append(f"CUDA {major} in {', '.join(found[:SHOWN])}{more}")
    return [
        warning(
            "mixed_cuda",
            "; ".join(parts),
            "one CUDA major in all that is loaded",
            "have stack_verify judge it: it knows what is never loaded; what it refuses needs a stack of one lock",
        )
    ]


def read_text(path: str, limit: int = MAX_TEXT) -> str | None:
    """The beginning of a regular file. None for anything else, which may block for ever (a FIFO) or never end (a device)."""
    with contextlib.suppress(OSError, ElfError), FileReader(path) as reader:
        return reader.read(0, min(reader.size, limit)).decode("utf-8", "replace")
    return None


def site_packages(path: str) -> list[str]:
    found = []
    for library in ("lib", "lib64"):
        folder = os.path.join(path, library)
        if os.path.islink(folder):
            continue
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                packages = os.path.join(folder, name, "site-packages")
                if re.fullmatch(r"python3\.\d+", name) and os.path.isdir(packages):
                    found.append(packages)
    return found


def distributions(folders: Iterable[str], problems: list[Problem]) -> dict[str, str]:
    """{normalised name: version} from the metadata. What has none, or is there twice, is said in `problems`."""
    found: dict[str, str] = {}
    for folder in folders:
        # A folder that cannot be listed is among the problems of the scan.
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name.endswith((".dist-info", ".egg-info")):
                    _add_distribution(folder, name, found, problems)
    return dict(sorted(found.items()))


def _add_distribution(folder: str, entry: str, found: dict[str, str], problems: list[Problem]) -> None:
    path = os.path.join(folder, entry)
    if entry.endswith(".egg-info"):
        text = read_text(os.path.join(path, "PKG-INFO") if os.path.isdir(path) else path)
    else:
        text = read_text(os.path.join(path, "METADATA"))
    fields = parse_metadata(text or "")
    name, version = normalized(fields.get("name", "")), fields.get("version")
    # pip renames what it is about to remove: torch-2.dist-info to ~orch-2.dist-info.
    left = entry.startswith("~")
    if left or not name or not version:
        what = "is left from an interrupted pip" if left else "tells no name and version"
        problems.append(
            warning("metadata_broken", f"{printable(entry)} {what}", "whole distributions only", "remove it, or install again")
        )
        return
    if name in found:
        problems.append(
            error(
                "distribution_twice",
                f"{name} {found[name]} and {name} {version}",
                "one version, since which of them is loaded is left to chance",
                "remove the folder and build it again",
            )
        )
    found[name] = version


def parse_metadata(text: str) -> dict[str, str]:
    """The header fields of a METADATA file, which end at its first empty line."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            break
        name, colon, value = line.partition(":")
        if colon and not name.startswith((" ", "\t")):
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def lock_id(path: str) -> str | None:
    """Of a stack: in the first line of a manifest that may be tens of megabytes. Of an environment: in a short file."""
    head = (read_text(os.path.join(path, "manifest.json")) or "").partition("\n")[0].strip()
    # The manifest's first line ends where its list of files begins.
    for text in (head, head + "]}", read_text(os.path.join(path, ".environment.json")) or ""):
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(text)
            found = document.get("lock_id") if isinstance(document, dict) else None
            if isinstance(found, str):
                return found
    return None


def parse_nvcc(text: str) -> str | None:
    match = re.search(r"\bV(\d+\.\d+\.\d+)\b", text)
    return match.group(1) if match else None


def toolkit(path: str, service_path: str, problems: list[Problem]) -> dict[str, Any]:
    # The order in which a service looks; an empty entry would be whatever folder this runs in.
    search = os.pathsep.join([f"{path}/bin", f"{path}/cuda/bin", *filter(None, service_path.split(os.pathsep))])
    candidates = [os.path.join(path, "cuda", "bin", "nvcc")]
    for packages in site_packages(path):
        for name in ("cu13", "cuda_nvcc"):
            candidates.append(os.path.join(packages, "nvidia", name, "bin", "nvcc"))
    nvcc = next((candidate for candidate in candidates if os.access(candidate, os.X_OK)), None)
    version = None
    if nvcc:
        version, said = ask_nvcc(nvcc, NVCC_SECONDS)
        if not version:
            problems.append(
                warning("nvcc_fails", f"{printable(nvcc)} --version: {said}", "its version", "build the stack again")
            )
    return {
        "nvcc": version,
        "nvcc_path": nvcc and printable(nvcc),
        "python_headers": python_headers(path),
        "cxx": _which("g++", search),
        "ninja": _which("ninja", search),
    }


def _which(name: str, search: str) -> str | None:
    found = shutil.which(name, path=search)
    return found and printable(found)


def ask_nvcc(nvcc: str, seconds: float) -> tuple[str | None, str]:
    """Its version and what it said. Whatever it is, it and its children end, and what they write is not gathered for ever."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [nvcc, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as broken:
        os.close(reading)
        return None, str(broken.strerror)
    finally:
        os.close(writing)
    said = b""
    late = False
    until = time.monotonic() + seconds
    try:
        while len(said) < MAX_ANSWER and not parse_nvcc(said.decode("utf-8", "replace")):
            late = not select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]
            data = b"" if late else os.read(reading, MAX_ANSWER)
            if not data:
                break
            said += data
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(reading)
        process.wait()
    text = said.decode("utf-8", "replace")
    if late:
        return parse_nvcc(text), f"nothing of a version within {seconds:g} s"
    return parse_nvcc(text), f"{text.strip()[:200]!r}" if text.strip() else "no output"


def python_headers(path: str) -> bool:
    """Whether the base interpreter's headers are there: compiling an extension at run time needs them."""
    fields: dict[str, str] = {}
    for line in (read_text(os.path.join(path, "pyvenv.cfg")) or "").splitlines():
        name, _equals, value = line.partition("=")
        fields[name.strip()] = value.strip()
    home = fields.get("home")
    version = re.match(r"3\.\d+", fields.get("version_info") or fields.get("version") or "")
    if not home or not version or "\0" in home:
        return False
    prefix = os.path.dirname(os.path.realpath(home))
    return os.path.exists(os.path.join(prefix, "include", f"python{version.group(0)}", "Python.h"))
