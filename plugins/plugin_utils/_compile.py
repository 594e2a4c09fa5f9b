# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`uv pip compile` on the controller: the one way in which this collection asks a package index for a closure."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The glibc minors for which uv knows a manylinux platform.
MANYLINUX = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
# What the operator may set about reaching an index. Every other UV_ variable could change the answer.
_KEPT = frozenset(
    {
        "UV_CACHE_DIR",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_KEYRING_PROVIDER",
        "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS",
    }
)
_INDEX = frozenset({"UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_INDEX_URL"})
# Folders of wheels and caches know no upload times: with them uv would pass over the day without a word.
_WITHOUT_A_DAY = ("UV_FIND_LINKS", "UV_NO_INDEX", "UV_OFFLINE")
# The part of an address that holds a user and a password; a password may itself hold an @.
CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+=)?https?://.+")
BRING_A_LOCK = (
    "A site without network uses an existing lock: put <stack id>.lock.txt, made elsewhere from the same plan, into the folder of locks."
)
SIGN_IN = "Put user and password into the netrc file of the controller's user, and for the wheels into that of root on the node."
_SHUT = ("valid authentication credentials", "401 Unauthorized", "403 Forbidden")
_UNREACHABLE = ("error sending request", "Failed to fetch", "dns error", "Connection refused", "timed out")
MOST_LINES = 12

# argv and environment in, (status, stdout, stderr) out.
Run = Callable[["list[str]", "dict[str, str]"], "tuple[int, str, str]"]


class LockingError(RuntimeError):
    """The closure could not be locked; the message says what was found and what to do."""


@dataclass(frozen=True)
class Question:
    """What uv is asked. Everything that the answer depends on is here."""

    requirements: list[str]
    python: str
    platform: str
    as_of: str
    constraints: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    dependencies: bool = True


def runner(timeout: int) -> Run:
    def run(argv: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return 1, "", f"uv was ended after {timeout} s: timed out"
        except OSError as error:
            return 1, "", f"uv could not be started: {error}"
        return done.returncode, done.stdout, done.stderr

    return run


def platform(machine: str, glibc: str) -> str:
    """The highest manylinux that uv knows and the target's glibc reaches."""
    major, _dot, minor = glibc.partition(".")
    reached = [number for number in MANYLINUX if major == "2" and minor.isdigit() and number <= int(minor)]
    if not reached:
        raise LockingError(f"The target has glibc {glibc}; wanted: 2.{MANYLINUX[0]} or newer. Use a newer distribution there.")
    return f"{machine}-manylinux_2_{reached[-1]}"


def environment(surroundings: Mapping[str, str], index_url: str | None) -> dict[str, str]:
    """The operator's surroundings without what could change the answer; the index goes by here, so no process list shows it."""
    for name in _WITHOUT_A_DAY:
        if surroundings.get(name):
            raise LockingError(
                f"{name} is set on the controller; wanted: a package index alone. A folder of wheels and a cache have no upload times, "
                f"so nothing can be locked as of a day. Unset it and name an index (option index_url). {BRING_A_LOCK}"
            )
    dropped = _INDEX if index_url else frozenset()
    kept = {
        name: value
        for name, value in surroundings.items()
        if not name.startswith("UV_") or ((name in _KEPT or name.startswith("UV_INDEX_")) and name not in dropped)
    }
    if index_url:
        kept["UV_DEFAULT_INDEX"] = index_url
    for name in _INDEX & kept.keys():
        for address in kept[name].split():
            _require_address("The option index_url" if index_url and name == "UV_DEFAULT_INDEX" else name, address)
    return kept | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def _require_address(where: str, address: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise LockingError(
            f"{where} names {CREDENTIALS.sub('***@', address)}; wanted: an address with http or https. A folder of wheels has no upload "
            f"times, so nothing can be locked as of a day. Serve it as an index in JSON (PEP 691 and 700). {BRING_A_LOCK}"
        )


def command(uv: str, question: Question, folder: Path) -> list[str]:
    argv = [uv, "pip", "compile", str(folder / "requirements.in"), "--format", "pylock.toml", "--no-config", "--no-build"]
    # uv believes an index's page for ten minutes: a file that was replaced since would be locked with its old hash.
    argv.append("--refresh")
    argv += ["--no-header", "--no-annotate", "--python-version", question.python, "--python-platform", question.platform]
    argv += ["--exclude-newer", question.as_of]
    for option, listed in (("--constraints", question.constraints), ("--overrides", question.overrides)):
        if listed:
            argv += [option, str(folder / f"{option[2:]}.txt")]
    return argv if question.dependencies else [*argv, "--no-deps"]


def ask(run: Run, uv: str, question: Question, environ: dict[str, str]) -> str:
    """The closure as the text of a pylock.toml."""
    with tempfile.TemporaryDirectory(prefix="inference-lock-") as name:
        folder = Path(name)
        for file, lines in (
            ("requirements.in", question.requirements),
            ("constraints.txt", question.constraints),
            ("overrides.txt", question.overrides),
        ):
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        code, out, err = run(command(uv, question, folder), environ)
    if "missing an upload date" in err:
        raise LockingError(
            "The package index gives no upload times (PEP 700), so nothing can be locked as of "
            f"{question.as_of}: without them a closure changes from day to day. Use an index that serves them, or bring an existing lock."
        )
    if code != 0:
        raise LockingError(explain(err, question))
    return out


def explain(err: str, question: Question) -> str:
    """uv's own words, shortened, and what to do about them."""
    text = CREDENTIALS.sub("***@", err)
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("warning:")]
    said = "\n".join(f"  {line.strip()}" for line in lines[:MOST_LINES]) or "  (nothing)"
    asked = f"{', '.join(question.requirements[:3])} for Python {question.python} on {question.platform} as of {question.as_of}"
    if any(word in text for word in _SHUT):
        remedy = f"The index asks for a user and a password. {SIGN_IN}"
    elif any(word in text for word in _UNREACHABLE):
        remedy = f"Check the index (option index_url). {BRING_A_LOCK}"
    elif "No solution found" in text:
        remedy = (
            "No set of wheels satisfies the release's own pins, the constraints and the overrides as of that day. "
            "Choose another release (sglang_version) or another Python, or correct the knowledge base's overrides for this release."
        )
    else:
        remedy = "See uv's own message."
    return f"Locking {asked} failed. uv says:\n{said}\n{remedy}"


def find_uv(given: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The uv of the controller's own environment: the package that is installed beside ansible-core."""
    if given:
        if os.access(given, os.X_OK):
            return given
        raise LockingError(f"The option uv names {given}; wanted: an executable. Correct the path, or leave the option out.")
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise LockingError(
            "uv is not installed on the controller; wanted: the Python package uv beside ansible-core. "
            "Install it there (pip install uv), or name an executable with the option uv."
        ) from error
