# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""uv on a target: the executable out of its own wheel, and the only ways in which this collection runs it.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from typing import Callable

from ansible_collections.blackwell.inference.plugins.module_utils import _lock
from ansible_collections.blackwell.inference.plugins.module_utils._durable import sha256_of, write_atomic
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock, LockError, Requirement
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

BIN = "/opt/inference/bin"
_MEMBER = re.compile(r"uv-[^/]+\.data/scripts/uv")

# argv and environment in, (status, stdout, stderr) out.
Run = Callable[["list[str]", "dict[str, str]"], "tuple[int, str, str]"]


def runner() -> Run:
    """Runs a program with exactly the given environment."""

    def run(argv: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def require_wheel(wheels: str, wanted: Requirement) -> str:
    """The wheel's path; only its size is looked at here, uv and the manifest look at its content."""
    path = os.path.join(wheels, wanted.filename)
    size = os.path.getsize(path) if os.path.isfile(path) else None
    if size != wanted.size:
        raise Refusal(
            f"The wheel {path}",
            "no such file" if size is None else f"{size} bytes",
            f"{wanted.size} bytes",
            "Run the module wheelhouse with this lock on the node: it fetches what is absent or damaged",
        )
    return path


def require_hash(path: str, wanted: Requirement) -> None:
    found = sha256_of(path)
    if found != wanted.sha256:
        raise Refusal(
            f"The wheel {path}",
            f"sha256 {found}",
            f"sha256 {wanted.sha256}",
            "The file was changed since it was fetched: remove it on the node and run the module wheelhouse again",
        )


def executable(uv_lock: str, wheels: str, check_mode: bool, folder: str | None = None) -> str:
    """Path of the uv executable that the lock names, extracted from its wheel the first time."""
    wanted = next((one for one in _lock.parse(uv_lock).requirements if one.name == "uv"), None)
    if wanted is None:
        raise LockError("the lock given as uv_lock does not name uv. Use the lock file that the collection ships")
    folder = folder or BIN
    path = os.path.join(folder, f"uv-{wanted.sha256[:12]}")
    if os.path.exists(path) or check_mode:
        return path
    wheel = require_wheel(wheels, wanted)
    require_hash(wheel, wanted)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    write_atomic(path, _member(wheel), 0o755)
    return path


def _member(wheel: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if _MEMBER.fullmatch(name)]
        if len(names) == 1:
            return archive.read(names[0])
    raise Refusal(f"The wheel {wheel}", "no executable uv in it", "uv-*.data/scripts/uv", "Use the lock file of this collection")


def interpreter(lock: Lock, given: str | None, find: Callable[[str], str | None]) -> str:
    """The Python that the environment is based on; only the system's own, never one that uv would download."""
    if given:
        path: str | None = given if os.access(given, os.X_OK) else None
    elif lock.python == _lock.ANY:
        path = find("python3")
    else:
        path = find(f"python{lock.python}")
    if path is None:
        raise Refusal(
            "The Python interpreter",
            f"no {given or 'python' + lock.python.replace(_lock.ANY, '3')} on this host",
            f"Python {lock.python}",
            "Install that interpreter, or make the plan and the lock again for the Python of this host",
        )
    return path


def require_version(path: str, lock: Lock, run: Run) -> str:
    """The interpreter's version, x.y; refuse one that the lock was not made for."""
    code, out, err = run([path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], {"PATH": "/usr/bin:/bin"})
    version = out.strip()
    if code != 0 or (lock.python not in (_lock.ANY, version)):
        raise Refusal(
            f"The Python interpreter {path}",
            f"Python {version}" if code == 0 else f"exit status {code}: {err.strip()[-200:]}",
            f"Python {lock.python}",
            "Give the interpreter that the lock was made for, or make the plan and the lock again",
        )
    return version


def environment(cache: str | None, bytecode: bool = True) -> dict[str, str]:
    """Everything that uv reads from its surroundings, so that nothing of the host's can change a build."""
    settings = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_BUILD": "1",
        "UV_LINK_MODE": "hardlink" if cache else "copy",
    }
    if cache:
        settings["UV_CACHE_DIR"] = cache
    else:
        settings["UV_NO_CACHE"] = "1"
    if bytecode:
        settings["UV_COMPILE_BYTECODE"] = "1"
        # Files never change in a finished environment, and a copy on another node need not keep their times.
        settings["PYC_INVALIDATION_MODE"] = "UNCHECKED_HASH"
    return settings


def venv_command(uv: str, python: str, path: str) -> list[str]:
    return [uv, "venv", "--no-project", "--python", python, path]


def install_command(uv: str, path: str, requirements: str, wheels: str) -> list[str]:
    """One transaction: exactly the lock's wheels by their hashes, from one folder, and nothing else."""
    return [
        uv,
        "pip",
        "install",
        "--python",
        os.path.join(path, "bin", "python"),
        "--offline",
        "--no-index",
        "--find-links",
        wheels,
        "--require-hashes",
        "--no-deps",
        "--requirement",
        requirements,
    ]


def build(run: Run, uv: str, python: str, path: str, lock: Lock, requirements: str, wheels: str, settings: dict[str, str]) -> None:
    """Make the virtual environment at its final path; the folder may exist, but holds only what the caller put there."""
    for command in (
        [*venv_command(uv, python, path), "--allow-existing"],
        install_command(uv, path, requirements, wheels),
    ):
        code, _out, err = run(command, settings)
        if code != 0:
            # A wheel that was swapped is the one cause that uv's message does not name by its file.
            for wanted in lock.requirements:
                require_hash(require_wheel(wheels, wanted), wanted)
            raise Refusal(
                f"`uv {command[1]} {command[2]}` for {path}",
                f"exit status {code}: {err.strip()[-1500:]}",
                "every wheel of the lock installed",
                "See uv's own message; the unfinished folder is removed, the one in use is untouched",
            )
