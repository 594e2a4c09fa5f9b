#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs what the facts modules run on a real GPU and compares every field with nvidia-smi and PyTorch.

A step of tests/gpu/run; needs neither root nor the bundle.
usage: facts.py [--record FILE]     (FILE gets the raw answers of this machine, as a fixture for the unit tests)
Exit status: 0 all equal, 1 something differs, 77 no GPU here (skipped).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Works on a machine without Ansible: the helpers import nothing but the standard library and each other.
_packages = tempfile.TemporaryDirectory(prefix="blackwell-facts-")
Path(_packages.name, "ansible_collections/blackwell").mkdir(parents=True)
Path(_packages.name, "ansible_collections/blackwell/inference").symlink_to(Path(__file__).resolve().parents[2])
sys.path.insert(0, _packages.name)

from ansible_collections.blackwell.inference.plugins.module_utils import _gpu, _gpu_code, _gpu_sources, _model, _model_folder
from report import SKIPPED, Report


def smi() -> ElementTree.Element:
    text = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True, timeout=60).stdout
    return ElementTree.fromstring(text)


def word(node: ElementTree.Element, path: str) -> str | None:
    text = node.findtext(path)
    return None if text is None or "N/A" in text else text.strip()


def number(node: ElementTree.Element, path: str) -> int | None:
    text = word(node, path)
    return None if text is None else round(float(text.split()[0].rstrip("x")))


def switch(node: ElementTree.Element, path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(word(node, path) or "")


TORCH = """
import json, sys, torch
found = []
for index in range(torch.cuda.device_count()):
    p = torch.cuda.get_device_properties(index)
    found.append({"name": p.name, "capability": f"{p.major}.{p.minor}", "multiprocessors": p.multi_processor_count,
                  "smem": p.shared_memory_per_block_optin, "uuid": "GPU-" + str(p.uuid), "memory": p.total_memory})
block = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print(json.dumps({"gpus": found, "archs": torch.cuda.get_arch_list(), "path": torch.__path__[0]}), flush=True)
sys.stdin.read()
"""


def collect(cuda: str) -> dict[str, Any]:
    return _gpu_sources.collect(_gpu_sources.Roots(), "nobody", 60, cuda, os.environ.get("PATH"))


def recorded(raw: dict[str, Any]) -> str:
    """A fixture: the raw answers without what identifies this one machine."""
    devices = raw["nvml"]["devices"]
    source = f"measured on a real {devices[0].get('name')} with tests/gpu/facts.py; UUIDs and kernel build replaced"
    text = json.dumps({"source": source, "raw": raw}, indent=1) + "\n"
    for device in devices:
        text = text.replace(device["uuid"], f"GPU-{device['index']:08x}-1111-2222-3333-444444444444")
    kernel = raw["platform"]["kernel"]
    return text.replace(kernel, kernel.partition("-")[0])


def check_gpu(report: Report, gpu: dict[str, Any], said: ElementTree.Element) -> None:
    report.compare("driver.version", gpu["driver"]["version"], word(said, "driver_version"), "nvidia-smi")
    report.compare("driver.library_version", gpu["driver"]["library_version"], word(said, "driver_version"), "nvidia-smi")
    report.compare("driver.cuda", gpu["driver"]["cuda"], word(said, "cuda_version"), "nvidia-smi")
    report.compare("count", gpu["count"], number(said, "attached_gpus"), "nvidia-smi")
    for device, node in zip(gpu["devices"], said.findall("gpu")):
        label = f"devices[{device['index']}]."
        bus = (node.get("id") or "").lower()
        report.compare(label + "pci_address", device["pci_address"], bus[-12:], "nvidia-smi")
        identity = word(node, "pci/pci_device_id") or ""
        report.compare(label + "pci_id", device["pci_id"], f"{identity[-4:]}:{identity[-8:-4]}".lower(), "nvidia-smi")
        for field, theirs in (
            ("uuid", word(node, "uuid")),
            ("name", word(node, "product_name")),
            ("minor", number(node, "minor_number")),
            ("memory_mib", number(node, "fb_memory_usage/total")),
            ("ecc", switch(node, "ecc_mode/current_ecc")),
            ("mig", switch(node, "mig_mode/current_mig")),
            ("persistence", switch(node, "persistence_mode")),
            ("pcie_width", number(node, "pci/pci_gpu_link_info/link_widths/current_link_width")),
            ("pcie_width_max", number(node, "pci/pci_gpu_link_info/link_widths/max_link_width")),
            ("power_limit_w", number(node, "gpu_power_readings/current_power_limit")),
        ):
            report.compare(label + field, device[field], theirs, "nvidia-smi")
        used = number(node, "fb_memory_usage/used")
        report.compare(label + "memory_used_mib", device["memory_used_mib"], used, "nvidia-smi", 16)
        there = device["node"] is not None and Path(device["node"]).is_char_device()
        report.compare(label + "node is a character device", there, True, "stat")


@contextmanager
def held_gpu() -> Iterator[dict[str, Any] | None]:
    """What PyTorch says of the GPUs, and its pid, while it holds 1 GiB of the first; None where it sees none."""
    holder = subprocess.Popen([sys.executable, "-c", TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert holder.stdin and holder.stdout
    try:
        line = holder.stdout.readline()
        yield {**json.loads(line), "pid": holder.pid} if line else None
    finally:
        holder.stdin.close()
        holder.stdout.close()
        try:
            holder.wait(60)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()


def check_torch(report: Report, gpu: dict[str, Any]) -> dict[str, Any] | None:
    """Compares with PyTorch, and reads the facts again while it holds memory."""
    report.begin("host against PyTorch")
    with held_gpu() as torch:
        if torch is None:
            report.not_tried("PyTorch", "not here, or it does not see the GPU")
            return None
        for device, theirs in zip(gpu["devices"], torch["gpus"]):
            label = f"devices[{device['index']}]."
            report.compare(label + "name", device["name"], theirs["name"], "torch")
            report.compare(label + "uuid", device["uuid"], theirs["uuid"], "torch")
            report.compare(label + "compute_capability", device["compute_capability"], theirs["capability"], "torch")
            report.compare(label + "multiprocessors", device["multiprocessors"], theirs["multiprocessors"], "torch")
            smem = device["shared_memory_per_block_optin"]
            report.compare(label + "shared_memory_per_block_optin", smem, theirs["smem"], "torch")
        raw = collect("auto")
        busy = _gpu.assemble(raw)
        first = busy["devices"][0]
        report.compare("busy: CUDA is not asked", raw["cuda"], None, "rule")
        grown = (first["memory_used_mib"] or 0) - (gpu["devices"][0]["memory_used_mib"] or 0)
        report.compare("busy: memory grew by 1 GiB or more", grown >= 1024, True, f"torch; grew by {grown} MiB")
        report.note("busy: processes", first["processes"])
        known = torch["pid"] in [entry["pid"] for entry in first["processes"]] or first["holder_unknown"]
        report.compare("busy: somebody is named, or said to be unknown", known, True, "torch")
        codes = {problem["code"] for problem in busy["problems"]}
        report.compare("busy: reported", bool(codes & {"gpu_busy", "gpu_held_unknown"}), True, f"rule; said {sorted(codes)}")
        return torch


def check_code(report: Report, torch: dict[str, Any]) -> None:
    report.begin("host, GPU code of PyTorch against cuobjdump")
    library = Path(torch["path"], "lib")
    started = time.perf_counter()
    found = _gpu_code.scan_tree(str(library))
    seconds = time.perf_counter() - started
    size = sum(path.stat().st_size for path in library.glob("*.so*"))
    report.note("scan of torch/lib", f"{size >> 20} MiB in {seconds * 1000:.1f} ms")
    for name, entry in found.items():
        if entry["code"]:
            report.note(name, f"{entry['code']}, {entry['units']} units, CUDA {entry['cuda_major']}")
    code = found["libtorch_cuda.so"]["code"]
    report.compare("torch's own list of architectures", set(torch["archs"]) <= set(code), True, "torch.cuda.get_arch_list")
    dump = shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")
    if not dump:
        report.not_tried("cuobjdump", "not here")
        return
    for name in ("libtorch_cuda_linalg.so", "libtorch_cuda.so"):
        if name not in found:
            continue
        started = time.perf_counter()
        theirs: dict[str, int] = {}
        for option, kind in (("--list-elf", "sm"), ("--list-ptx", "compute")):
            command = [dump, option, str(library / name)]
            text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            for line in text.splitlines():
                if " file " in line and "sm_" in line:
                    arch = line.rsplit(".", 2)[-2].removeprefix("sm_")
                    theirs[f"{kind}_{arch}"] = theirs.get(f"{kind}_{arch}", 0) + 1
        report.note(f"cuobjdump on {name}", f"{time.perf_counter() - started:.1f} s")
        # cuobjdump does not show the family suffix.
        ours: dict[str, int] = {}
        for arch, units in found[name]["code"].items():
            ours[arch.rstrip("f")] = ours.get(arch.rstrip("f"), 0) + units
        report.compare(f"code of {name}", dict(sorted(ours.items())), dict(sorted(theirs.items())), "cuobjdump")


def check_model(report: Report) -> None:
    """A small model written by the safetensors library itself."""
    report.begin("host, model against safetensors")
    try:
        import safetensors.torch
        import torch
    except ImportError:
        report.not_tried("safetensors", "not here")
        return
    with tempfile.TemporaryDirectory() as folder:
        tensors = {
            "model.embed_tokens.weight": torch.zeros(1024, 256, dtype=torch.bfloat16),
            "model.layers.0.mlp.weight": torch.zeros(512, 256, dtype=torch.float8_e4m3fn),
            "lm_head.weight": torch.zeros(3, dtype=torch.float32),
        }
        safetensors.torch.save_file(tensors, str(Path(folder, "model.safetensors")))
        Path(folder, "config.json").write_text(json.dumps({"num_hidden_layers": 1, "dtype": "bfloat16"}))
        model = _model.describe(_model_folder.read_folder(folder))
        report.compare("model.parameters", model["parameters"], sum(t.numel() for t in tensors.values()), "safetensors")
        stored = sum(t.numel() * t.element_size() for t in tensors.values())
        report.compare("model.weight_bytes", model["weight_bytes"], stored, "safetensors")
        report.compare("model.complete", model["complete"], True, "safetensors")


def has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None and Path("/dev/nvidiactl").exists()


def check_host(report: Report, record: str | None = None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the facts, and what PyTorch says where there is one."""
    report.begin("host against nvidia-smi")
    said = smi()
    raw = collect("always")
    if record:
        Path(record).write_text(recorded(raw))
    gpu = _gpu.assemble(raw)
    report.note("problems", [f"{problem['code']}: {problem['found']}" for problem in gpu["problems"]])
    report.note("platform", gpu["platform"])
    report.note("container", gpu["container"])
    report.note("peak memory of reading the facts", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    check_gpu(report, gpu, said)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    hidden = _gpu.assemble(collect("always"))
    del os.environ["CUDA_VISIBLE_DEVICES"]
    report.compare("CUDA_VISIBLE_DEVICES changes nothing", [d["multiprocessors"] for d in hidden["devices"]],
                   [d["multiprocessors"] for d in gpu["devices"]], "rule")  # fmt: skip
    torch = check_torch(report, gpu)
    if torch:
        check_code(report, torch)
    check_model(report)
    return gpu, torch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="FILE", help="write this machine's raw answers")
    options = parser.parse_args()
    if not has_gpu():
        print("SKIPPED: no NVIDIA GPU here (no nvidia-smi or no /dev/nvidiactl); nothing was tested")
        return SKIPPED
    report = Report()
    check_host(report, options.record)
    print(report.table())
    print(report.summary("this machine"))
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
