# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a stack folder or virtual environment holds. Nothing of it is imported."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import scan_tree
from ansible_collections.blackwell.inference.plugins.module_utils._lock import normalized
from ansible_collections.blackwell.inference.plugins.module_utils._platform import read_text
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning

NVCC_SECONDS = 10
MAX_MANIFEST = 256 << 20


def describe(path: str, service_path: str) -> dict[str, Any]:
    path = os.path.realpath(path)
    problems: list[Problem] = []
    files = scan_tree(path)
    for name, entry in files.items():
        if entry["problem"]:
            problems.append(
                error("binary_damaged", f"{name}: {entry['problem']}", "a readable shared object", "build the stack again")
            )
    majors = {name: entry["cuda_major"] for name, entry in files.items() if entry["cuda_major"]}
    if len(set(majors.values())) > 1:
        examples = [next(f"{name} (CUDA {major})" for name, value in majors.items() if value == major)
                    for major in sorted(set(majors.values()))]  # fmt: skip
        problems.append(
            error("mixed_cuda", " and ".join(examples), "one CUDA major in a stack", "build it from one lock again")
        )
    found = distributions(site_packages(path))
    if not found:
        problems.append(
            error("no_distributions", f"no distribution below {path}", "a virtual environment", "correct path, or build it")
        )
    return {
        "path": path,
        "lock_id": lock_id(path),
        "distributions": found,
        "cuda_major": majors,
        "code": {name: entry["code"] for name, entry in files.items() if entry["code"]},
        "units": {name: entry["units"] for name, entry in files.items() if entry["code"]},
        "toolkit": toolkit(path, service_path, problems),
        "problems": problems,
    }


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


def distributions(folders: list[str]) -> dict[str, str]:
    """{normalised name: version} from the metadata; a broken one is left out."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".dist-info"):
                continue
            fields = parse_metadata(read_text(os.path.join(folder, name, "METADATA")) or "")
            if fields.get("name") and fields.get("version"):
                found[normalized(fields["name"])] = fields["version"]
    return dict(sorted(found.items()))


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
    for name in ("manifest.json", ".environment.json"):
        text = read_text(os.path.join(path, name), MAX_MANIFEST)
        if text is None:
            continue
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
    search = os.pathsep.join((os.path.join(path, "bin"), service_path))
    candidates = [os.path.join(path, "cuda", "bin", "nvcc")]
    for packages in site_packages(path):
        for name in ("cu13", "cuda_nvcc"):
            candidates.append(os.path.join(packages, "nvidia", name, "bin", "nvcc"))
    nvcc = next((candidate for candidate in candidates if os.access(candidate, os.X_OK)), None)
    version = None
    if nvcc:
        try:
            answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=NVCC_SECONDS, check=False)
            version = parse_nvcc(answer.stdout)
        except (OSError, subprocess.TimeoutExpired) as broken:
            problems.append(
                warning("nvcc_fails", f"{nvcc} --version: {broken}", "its version", "build the stack again")
            )
    return {
        "nvcc": version,
        "nvcc_path": nvcc,
        "python_headers": python_headers(path),
        "cxx": shutil.which("g++", path=search),
        "ninja": shutil.which("ninja", path=search),
    }


def python_headers(path: str) -> bool:
    """Whether the base interpreter's headers are there: compiling an extension at run time needs them."""
    fields: dict[str, str] = {}
    for line in (read_text(os.path.join(path, "pyvenv.cfg")) or "").splitlines():
        name, _equals, value = line.partition("=")
        fields[name.strip()] = value.strip()
    home = fields.get("home")
    version = re.match(r"3\.\d+", fields.get("version_info") or fields.get("version") or "")
    if not home or not version:
        return False
    prefix = os.path.dirname(os.path.realpath(home))
    return os.path.exists(os.path.join(prefix, "include", f"python{version.group(0)}", "Python.h"))
