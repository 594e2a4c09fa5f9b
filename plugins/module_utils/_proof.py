# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathering what the proof of a stack looks at, and the proofs themselves.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _lock, _stack
from ansible_collections.blackwell.inference.plugins.module_utils._durable import write_atomic
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import scan_tree
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._verify import Evidence, HelpOutput

_UUID = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9-]{1,64}")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")
_DRIVER = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}")
_METADATA = re.compile(r"^(Name|Version): *(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Subject:
    """What one proof speaks of; another hash of any of it makes the proof worthless."""

    lock_id: str
    uuid: str
    capability: str
    driver: str
    mode: str
    manifest: str
    demands: str

    def content(self) -> dict[str, Any]:
        return {
            "lock_id": self.lock_id,
            "gpu": self.uuid,
            "compute_capability": self.capability,
            "driver": self.driver,
            "mode": self.mode,
            "manifest_sha256": self.manifest,
            "demands_sha256": self.demands,
        }


def demands(flags: Iterable[str], exempt: Iterable[dict[str, Any]]) -> str:
    """Hash of what was asked for beside the stack itself."""
    text = json.dumps({"flags": sorted(set(flags)), "exempt": sorted(one["file"] for one in exempt)})
    return hashlib.sha256(text.encode()).hexdigest()


def identity(gpu: dict[str, Any]) -> tuple[str, str]:
    """UUID and compute capability of a GPU as facts describe it; a lost one has neither."""
    uuid, capability = gpu.get("uuid"), gpu.get("compute_capability")
    if not isinstance(uuid, str) or not _UUID.fullmatch(uuid) or not _CAPABILITY.fullmatch(str(capability)):
        raise Refusal(
            "A GPU to prove a stack on",
            f"uuid {uuid!r:.80}, compute_capability {capability!r:.20}",
            "both as gpu_facts returns them for a working GPU",
            "Pass ansible_facts.gpu.devices, and look at its problems for a GPU without these values",
        )
    return uuid, str(capability)


def proof_path(state: str, lock_id: str, uuid: str, driver: str) -> str:
    if not _DRIVER.fullmatch(driver):
        raise Refusal(
            "The driver to prove a stack with",
            f"version {driver[:40]!r}",
            "a driver version as gpu_facts returns it",
            "Pass ansible_facts.gpu.driver.version; without a loaded driver nothing can be proven",
        )
    return os.path.join(state, "proofs", lock_id, f"{uuid}-{driver}.json")


def read_proof(path: str, subject: Subject) -> list[dict[str, Any]] | None:
    """The checks of a valid proof; None when there is none for exactly this subject."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if {key: content[key] for key in subject.content()} != subject.content() or content["ok"] is not True:
            return None
        return list(content["checks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_proof(path: str, subject: Subject, checks: list[dict[str, Any]]) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    text = json.dumps({**subject.content(), "ok": True, "checks": checks}, indent=1, sort_keys=True) + "\n"
    write_atomic(path, text.encode())


def site_packages(path: str) -> str | None:
    library = os.path.join(path, "lib")
    versions = sorted(os.listdir(library)) if os.path.isdir(library) else []
    found = [os.path.join(library, name, "site-packages") for name in versions if name.startswith("python")]
    return found[-1] if found else None


def distributions(folder: str) -> dict[str, str]:
    """Installed distributions by their own metadata, as an installer left them."""
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".dist-info"):
            continue
        try:
            with open(os.path.join(folder, name, "METADATA"), encoding="utf-8", errors="replace") as file:
                # Name and Version stand in the first lines; a description may follow that repeats such words.
                values = dict(_METADATA.findall(file.read(4096).split("\n\n")[0]))
        except OSError:
            values = {}
        found[_lock.normalized(values.get("Name", name.split("-")[0]))] = values.get("Version", "unknown")
    return found


def gather(path: str, exempt: Iterable[dict[str, Any]], help_output: HelpOutput) -> Evidence:
    folder = site_packages(path)
    lock_file = os.path.join(path, _stack.LOCK_FILE)
    try:
        with open(lock_file, encoding="utf-8") as file:
            lock = _lock.parse(file.read())
    except (OSError, ValueError) as error:
        raise Refusal(f"The stack {path}", f"no readable lock in it ({error})", "a stack", "Run stack_build") from None
    if folder is None:
        raise Refusal(f"The stack {path}", "no environment in it", "a stack", "Run stack_build")
    return Evidence(
        lock=lock,
        problem=_stack.problem(path),
        installed=distributions(folder),
        code=scan_tree(folder),
        help=help_output,
        exempt=[one["file"] for one in exempt],
    )


def engine_help(path: str, user: str, timeout: float) -> HelpOutput:
    """Ask the installed engine for its flags, as the service user, without a GPU in sight and without leaving a trace."""
    account = pwd.getpwnam(user)
    home = tempfile.mkdtemp(prefix="inference-help-")
    try:
        os.chown(home, account.pw_uid, account.pw_gid)
        return _run_as(
            [os.path.join(path, "bin", "python"), "-m", "sglang.launch_server", "--help"],
            _help_environment(path, home),
            account.pw_uid,
            grp.getgrnam(user).gr_gid,
            timeout,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _help_environment(path: str, home: str) -> dict[str, str]:
    return {
        "PATH": f"{path}/bin:{path}/cuda/bin:/usr/bin:/bin",
        "HOME": home,
        "LANG": "C.UTF-8",
        # argparse breaks long flags over lines in a narrow terminal.
        "COLUMNS": "1000",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_HOME": f"{path}/cuda",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _run_as(argv: list[str], environ: dict[str, str], uid: int, gid: int, timeout: float) -> HelpOutput:
    identity: dict[str, Any] = {} if os.geteuid() == uid else {"user": uid, "group": gid, "extra_groups": []}
    try:
        process = subprocess.Popen(
            argv,
            env=environ,
            cwd=environ["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            **identity,
        )
    except OSError as error:
        return HelpOutput(127, err=f"{argv[0]}: {error.strerror}")
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        # An import may have started children; all of them are in the session of their own.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return HelpOutput(None, out, err)
    return HelpOutput(process.returncode, out, err)
