# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the containers of a trial have: the payloads, a model, packages and the driver, and how one is described."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from room import SHIFT, Room, RoomError, unpack

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PYTHON = "/usr/bin/python3"
SYSTEM_FOLDERS = ("/lib", "/usr/lib")
MODEL_FACTS = {"parameters": 4096, "weight_bytes": 6144, "kv_bytes_per_token": 64, "complete": True}
PROGRAMS = f"lib/python3.{sys.version_info[1]}/site-packages"
VMID = 200
SECONDS = 240

MODULES = {
    "gpu": ["gpu_facts", {"service_user": "inference", "cuda_attributes": "always", "vmid": VMID, "timeout": 60}],
    "gpu_auto": ["gpu_facts", {"service_user": "inference", "cuda_attributes": "auto", "timeout": 60}],
    "model": ["model_facts", {"path": "/srv/model"}],
    "stack": ["stack_facts", {"path": "/srv/stack"}],
}


def driver_library(ldconfig: str) -> str | None:
    """Of what "ldconfig -p" lists, the 64-bit NVML."""
    found = re.search(r"libnvidia-ml\.so\.1 \([^)]*x86-64[^)]*\) => (\S+)", ldconfig)
    return found.group(1) if found else None


def driver_folder(work: Path) -> Path:
    """The driver's libraries in a folder of their own, whether the host keeps them so or among its others."""
    text = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    own = Path("/usr/local/nvidia/lib64/libnvidia-ml.so.1")
    library = driver_library(text) or (str(own) if own.exists() else None)
    if library is None:
        raise RoomError("found: no libnvidia-ml.so.1 by ldconfig; wanted: the driver's libraries on the host")
    folder = Path(library).resolve().parent
    if not str(folder).startswith(SYSTEM_FOLDERS):
        return folder
    copies = work / "driver"
    copies.mkdir()
    for pattern in ("libnvidia-*.so*", "libcuda.so*"):
        for path in folder.glob(pattern):
            shutil.copy2(path, copies / path.name, follow_symlinks=False)
    return copies


def write_model(folder: Path) -> None:
    """A whole model of two tensors, which MODEL_FACTS describes."""
    folder.mkdir()
    tensors = {
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [64, 32], "data_offsets": [0, 4096]},
        "lm_head.weight": {"dtype": "F8_E4M3", "shape": [64, 32], "data_offsets": [4096, 6144]},
    }
    header = json.dumps(tensors).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(6144))
    config = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 8, "hidden_size": 32, "dtype": "bfloat16", "max_position_embeddings": 4096}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def write_packages(folder: Path) -> None:
    """For machines without PyTorch: one distribution with GPU code, laid out as nvcc does it."""
    # Importable since facts.py was imported, which lays out the collection.
    from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import fat_elf

    (folder / "kernels-1.0.dist-info").mkdir(parents=True)
    (folder / "kernels-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n")
    (folder / "kernels.so").write_bytes(fat_elf(("sm_90", "compute_90"), ("sm_120a",)))


def facts_in(text: str, key: str) -> dict[str, Any]:
    """What a module printed, which may stand behind warnings. Raises ValueError."""
    try:
        found: dict[str, Any] = json.loads(text[text.index("{") :])["ansible_facts"][key]
    except KeyError as missing:
        raise ValueError(f"no {missing}") from None
    return found


def facts_of(answer: dict[str, Any], label: str, key: str) -> dict[str, Any]:
    ran = answer["run"][label]
    try:
        return facts_in(ran["out"], key)
    except ValueError:
        raise RoomError(f"{answer['name']}: {label} ended with {ran['status']}: {ran['out'][-500:]} {ran['err'][-1000:]}") from None


def payload(name: str) -> list[str]:
    return ["python3", f"/srv/payloads/{name}.py"]


def container(name: str, binds: dict[str, str], driver: bool, run: dict[str, list[str]], unprivileged: bool = True) -> dict[str, Any]:
    """`binds`: target in the container -> source in the room, where a device lies at its own path."""
    places = {"/srv/payloads": "/payloads", **binds}
    files = {}
    if driver:
        places["/usr/local/nvidia/lib64"] = "/driver"
        files["/etc/ld.so.conf.d/nvidia.conf"] = "/usr/local/nvidia/lib64\n"
    first = {"user": ["useradd", "--system", "inference"], "libraries": ["ldconfig"]}
    return {"name": f"blackwell-{name}", "unprivileged": unprivileged, "binds": places, "files": files, "run": {**first, **run}}


def packages_of_torch() -> Path | None:
    path = Path(sysconfig.get_path("purelib"))
    for folder in (path, *map(Path, sys.path)):
        if folder.name in ("site-packages", "dist-packages") and (folder / "torch").is_dir():
            return folder
    return None


def folders() -> dict[str, str]:
    return {"/srv/model": "/model", f"/srv/stack/{PROGRAMS}": "/packages"}


class Trial:
    """One room with what every container of it can have, and the payloads."""

    def __init__(self, room: Room, controller: Path, packages: Path | None) -> None:
        self.work = work = room.work
        self._room = room
        self.payloads = work / "payloads"
        self.payloads.mkdir()
        room.add_tree("unprivileged", SHIFT)
        room.add_tree("privileged", 0)
        unpack(controller, work / "controller")
        collection = {"/collections/ansible_collections/blackwell/inference": str(CHECKOUT), "/controller": str(work / "controller")}
        program = {"/test/payloads.py": str(HERE / "payloads.py"), "/payloads": str(self.payloads)}
        room.run([PYTHON, "/test/payloads.py"], json.dumps(MODULES), {**collection, **program}, SECONDS, writable=["/payloads"])
        write_model(work / "model")
        (work / "empty").touch()
        if packages is None:
            packages = work / "packages"
            write_packages(packages)
        self._packages = packages
        self._binds = {
            "/test/inside.py": str(HERE / "inside.py"), "/payloads": str(self.payloads), "/model": str(work / "model"),
            "/empty": str(work / "empty"), "/packages": str(packages),
        }  # fmt: skip

    def bind(self, target: str, source: str) -> None:
        self._binds[target] = source

    def serve(self, containers: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        text = self._room.run([PYTHON, "/test/inside.py"], json.dumps({"containers": containers}), self._binds, SECONDS)
        return {answer["name"].removeprefix("blackwell-"): answer for answer in json.loads(text)}

    def on_host(self, name: str, key: str) -> dict[str, Any]:
        """The same file on the host, which finds the stack under the path that it has in the container."""
        script = 'set -e; mount -t tmpfs tmpfs /srv; mkdir -p $2; mount --bind "$1" $2; shift 2; exec "$@"'
        stack = f"/srv/stack/{PROGRAMS}"
        program = [sys.executable, str(self.payloads / f"{name}.py")]
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(self._packages), stack, *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            return facts_in(done.stdout, key)
        except ValueError:
            raise RoomError(f"{name} on the host: {done.stdout[-500:]} {done.stderr[-1000:]}") from None
