#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three facts modules, as Ansible sends them, in real LXC containers that own this machine's GPUs.

usage: containers.py      (needs root and .gpu, which "make gpu-bundle" makes on a machine with network)
What they return is compared with the same payload on the host, with nvidia-smi in the container and with safetensors.
Exit status: 0 all equal, 1 something differs, 77 no GPU here (skipped).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from facts import TORCH, check_gpu
from report import SKIPPED, compare, finish, note
from room import Room, RoomError

BUNDLE = Path(__file__).resolve().parents[2] / ".gpu"
PAYLOADS = "/srv/payloads"
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
SYSTEM_FOLDERS = ("/lib", "/usr/lib")
# What changes from one reading to the next, or is another's view.
MOVING = {"memory_used_mib", "processes", "holder_unknown", "accessible"}
SECONDS = 240


def driver_folder(work: Path) -> Path:
    """The driver's libraries in a folder of their own, whether the host keeps them so or among its others."""
    text = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    candidates = re.findall(r"libnvidia-ml\.so\.1 .*=> (\S+)", text)
    candidates += [str(path) for path in Path("/usr/local/nvidia").glob("lib64/libnvidia-ml.so.1")]
    if not candidates:
        raise RoomError("found: no libnvidia-ml.so.1 by ldconfig; wanted: the driver's libraries on the host")
    folder = Path(candidates[0]).resolve().parent
    if not str(folder).startswith(SYSTEM_FOLDERS):
        return folder
    copies = work / "driver"
    copies.mkdir()
    for pattern in ("libnvidia-*.so*", "libcuda.so*"):
        for path in folder.glob(pattern):
            shutil.copy2(path, copies / path.name, follow_symlinks=False)
    return copies


def write_model(folder: Path) -> None:
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


def facts_of(answer: dict[str, Any], label: str, key: str) -> dict[str, Any]:
    ran = answer["run"][label]
    try:
        found: dict[str, Any] = json.loads(ran["out"][ran["out"].index("{") :])["ansible_facts"][key]
    except (ValueError, KeyError):
        raise RoomError(f"{answer['name']}: {label} ended with {ran['status']}: {ran['out'][-500:]} {ran['err'][-1000:]}") from None
    return found


def on_host(payload: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    command = [sys.executable, str(BUNDLE / "payloads" / f"{payload}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    found: dict[str, Any] = json.loads(done.stdout)["ansible_facts"]
    return found


def payload(name: str) -> list[str]:
    return ["python3", f"{PAYLOADS}/{name}.py"]


def container(name: str, devices: list[str], driver: Path | None, run: dict[str, list[str]], unprivileged: bool = True) -> dict[str, Any]:
    """Binds name their places in the room, where folders lie under the same path as on the host."""
    binds = {device: device for device in devices} | {"/payloads": PAYLOADS}
    first = {"user": ["useradd", "--system", "inference"]}
    files = {}
    if driver is not None:
        binds["/driver"] = "/usr/local/nvidia/lib64"
        files["/etc/ld.so.conf.d/nvidia.conf"] = "/usr/local/nvidia/lib64\n"
        first["libraries"] = ["ldconfig"]
    return {"name": f"blackwell-{name}", "unprivileged": unprivileged, "binds": binds, "files": files, "run": {**first, **run}}


def codes(facts: dict[str, Any]) -> set[str]:
    return {problem["code"] for problem in facts["problems"]}


def same_devices(label: str, inside: dict[str, Any], host: dict[str, Any]) -> None:
    compare(f"{label}: count", inside["count"], host["count"], "the host")
    compare(f"{label}: driver", inside["driver"], host["driver"], "the host")
    for ours, theirs in zip(inside["devices"], host["devices"]):
        for key in sorted(set(ours) | set(theirs)):
            if key not in MOVING:
                compare(f"{label}: devices[{theirs['index']}].{key}", ours.get(key), theirs.get(key), "the host")


def check_whole(answer: dict[str, Any], host: dict[str, Any], stack: dict[str, Any]) -> None:
    inside = facts_of(answer, "gpu", "gpu")
    same_devices("in the container", inside, host)
    check_gpu(inside, ElementTree.fromstring(answer["run"]["smi"]["out"]))
    compare("container", inside["container"], {"type": "lxc", "unprivileged": True, "vmid": 200}, "the test")
    compare("every card can be opened by the service user", [device["accessible"] for device in inside["devices"]],
            [True] * host["count"], "mode 0666")  # fmt: skip
    compare("device nodes", inside["device_nodes"], {"missing": [], "not_char": [], "unreadable": []}, "the test")
    hidden = facts_of(answer, "hidden", "gpu")
    same_devices("with CUDA_VISIBLE_DEVICES of nonsense", hidden, inside)
    model = facts_of(answer, "model", "model")
    expected = {"parameters": 4096, "weight_bytes": 6144, "kv_bytes_per_token": 64, "complete": True}
    compare("model_facts in the container", {key: model[key] for key in expected}, expected, "the folder as written")
    ours = facts_of(answer, "stack", "stack")
    for key in ("distributions", "cuda_major", "code", "units"):
        compare(f"stack_facts in the container: {key} of {len(stack[key])}", ours[key] == stack[key], True, "the host")


def check_faults(answers: list[dict[str, Any]], host: dict[str, Any]) -> None:
    for answer in answers:
        kind = answer["name"].removeprefix("blackwell-")
        facts = facts_of(answer, "gpu", "gpu")
        if kind == "privileged":
            same_devices("privileged", facts, host)
            compare("privileged: said so", "container_privileged" in codes(facts), True, "the test")
            compare("privileged: container.unprivileged", facts["container"]["unprivileged"], False, "the test")
            continue
        wanted = {"without-card": "no_gpu_here" if host["count"] == 1 else "device_node_absent",
                  "with-file": "device_node_not_char", "without-library": "driver_library_missing"}[kind]  # fmt: skip
        compare(f"{kind}: {wanted}", wanted in codes(facts), True, f"the test; said {sorted(codes(facts))}")


def check_busy(room: Room, quiet: dict[str, Any], binds: dict[str, str], devices: list[str], driver: Path) -> None:
    """Somebody on the host holds 1 GiB, whom a container cannot see."""
    holder = subprocess.Popen([sys.executable, "-c", TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin and holder.stdout
    try:
        if not holder.stdout.readline():
            note("PyTorch", "not here: a held card was not tried")
            return
        job = {"containers": [container("busy", devices, driver, {"gpu": payload("gpu_short")})]}
        facts = facts_of(room.run(job, binds, SECONDS)[0], "gpu", "gpu")
        grown = facts["devices"][0]["memory_used_mib"] - quiet["devices"][0]["memory_used_mib"]
        compare("held from outside: memory grew by 1 GiB or more", grown >= 1024, True, "torch")
        compare("held from outside: reported", bool(codes(facts) & {"gpu_busy", "gpu_held_unknown"}), True, "the test")
        note("held from outside", [problem["found"] for problem in facts["problems"] if problem["code"].startswith("gpu_")])
    finally:
        holder.stdin.close()
        holder.wait(60)


def main() -> int:
    if not shutil.which("nvidia-smi") or not Path("/dev/nvidiactl").exists():
        print("SKIPPED: no NVIDIA GPU here (no nvidia-smi or no /dev/nvidiactl); nothing was tested")
        return SKIPPED
    missing = [name for name in ("root.tar.xz", "payloads") if not (BUNDLE / name).exists()]
    if missing or os.geteuid() != 0:
        print(f"found: {', '.join(missing) or 'a user other than root'}{' missing in .gpu' if missing else ''}; "
              "wanted: root, and the bundle; do: make gpu-bundle on a machine with network, and bring .gpu along")  # fmt: skip
        return 1
    host = on_host("gpu")["gpu"]
    cards = [device["node"] for device in host["devices"]]
    devices = [*cards, *(path for path in CONTROL if Path(path).is_char_device())]
    packages = next(path for path in sys.path if path.endswith(("site-packages", "dist-packages")) and Path(path, "torch").is_dir())
    with tempfile.TemporaryDirectory(prefix="blackwell-gpu-") as name, Room(BUNDLE / "root.tar.xz") as room:
        work = Path(name)
        driver = driver_folder(work)
        write_model(work / "model")
        (work / "empty").touch()
        prefix = f"lib/python3.{sys.version_info[1]}/site-packages"
        binds = {
            str(BUNDLE / "payloads"): "/payloads", str(driver): "/driver", str(work / "model"): "/model", str(work / "empty"): "/empty",
            packages: "/packages", str(shutil.which("nvidia-smi")): "/nvidia-smi",
        }  # fmt: skip
        whole = container("whole", devices, driver, {
            "gpu": payload("gpu"), "hidden": ["env", "CUDA_VISIBLE_DEVICES=none", *payload("gpu")],
            "smi": ["/usr/local/bin/nvidia-smi", "-q", "-x"], "model": payload("model"), "stack": payload("stack"),
        })  # fmt: skip
        whole["binds"].update({"/model": "/srv/model", "/packages": f"/srv/stack/{prefix}", "/nvidia-smi": "/usr/local/bin/nvidia-smi"})
        with_file = container("with-file", devices[1:], driver, {"gpu": payload("gpu")})
        with_file["binds"]["/empty"] = cards[0]
        job = {"containers": [
            whole,
            container("privileged", devices, driver, {"gpu": payload("gpu")}, unprivileged=False),
            container("without-card", devices[1:], driver, {"gpu": payload("gpu")}),
            with_file,
            container("without-library", devices, None, {"gpu": payload("gpu")}),
        ]}  # fmt: skip
        answers = room.run(job, binds, SECONDS)
        note("containers", ", ".join(f"{one['name']} {one['state']} in {one['seconds']} s" for one in answers))
        check_whole(answers[0], host, stack_on_host(packages, prefix))
        check_faults(answers[1:], host)
        check_busy(room, facts_of(answers[0], "gpu", "gpu"), binds, devices, driver)
    return finish()


def stack_on_host(packages: str, prefix: str) -> dict[str, Any]:
    """By the functions that the payload calls, since its path is fixed and a linked folder would not be entered."""
    # Importable since facts.py was imported: it lays out the collection on a machine without Ansible.
    from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_code, _stack_facts

    files = {f"{prefix}/{name}": entry for name, entry in _gpu_code.scan_tree(packages).items()}
    return {
        "distributions": _stack_facts.distributions([packages], []),
        "cuda_major": {name: entry["cuda_major"] for name, entry in files.items() if entry["cuda_major"]},
        "code": {name: entry["code"] for name, entry in files.items() if entry["code"]},
        "units": {name: entry["units"] for name, entry in files.items() if entry["code"]},
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RoomError as error:
        print(f"FAILED: {error}")
        sys.exit(1)
