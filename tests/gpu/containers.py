# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three facts modules, as Ansible sends them, in real LXC containers.

What they return there is compared with the same file run on the host, with nvidia-smi in the container, and with the
model folder as it was written. Without a GPU the same containers rehearse everything but the GPU.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from facts import check_gpu, held_gpu
from report import Report
from trial import MODEL_FACTS, VMID, Trial, container, driver_folder, facts_of, folders, payload

CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
# What changes from one reading to the next, or is another's view.
MOVING = {"memory_used_mib", "processes", "holder_unknown", "accessible"}


def codes(facts: dict[str, Any]) -> list[str]:
    return sorted({problem["code"] for problem in facts["problems"]})


def of_the_gpus(facts: dict[str, Any]) -> list[str]:
    """Without what is said of the place: the host may be a container itself."""
    return [code for code in codes(facts) if not code.startswith("container_")]


def same_devices(report: Report, inside: dict[str, Any], host: dict[str, Any]) -> None:
    for key in ("count", "driver", "compute_capabilities", "sources"):
        report.compare(key, inside[key], host[key], "the host")
    for ours, theirs in zip(inside["devices"], host["devices"]):
        for key in sorted(set(ours) | set(theirs)):
            if key not in MOVING:
                report.compare(f"devices[{theirs['index']}].{key}", ours.get(key), theirs.get(key), "the host")


def check_model_and_stack(report: Report, answer: dict[str, Any], host_stack: dict[str, Any]) -> None:
    report.begin("model_facts in the container")
    model = facts_of(answer, "model", "model")
    for key, value in MODEL_FACTS.items():
        report.compare(key, model[key], value, "the folder as written")
    report.begin("stack_facts in the container")
    stack = facts_of(answer, "stack", "stack")
    for key in ("path", "lock_id", "distributions", "cuda_major", "code", "units"):
        same = stack[key] == host_stack[key]
        report.compare(f"{key} as on the host", same, True, f"{stack[key]!r:.60} here, {host_stack[key]!r:.60} there")
    for key in ("distributions", "cuda_major", "code"):
        report.compare(f"{key}: there is something to compare", len(host_stack[key]) > 0, True, "the test")
    report.note("compared", f"{len(stack['distributions'])} distributions, {len(stack['code'])} files with GPU code")


def check_container(report: Report, facts: dict[str, Any], unprivileged: bool) -> None:
    report.compare("container", facts["container"], {"type": "lxc", "unprivileged": unprivileged, "vmid": VMID}, "the test")
    said = "container_privileged" in codes(facts)
    report.compare("container_privileged is said", said, not unprivileged, f"the test; said {codes(facts)}")


def rehearse(report: Report, trial: Trial) -> None:
    """Two device paths stand in for NVIDIA's: a real character device that is none of its, and a regular file."""
    nodes = {"/dev/nvidiactl": "/dev/null", "/dev/nvidia-uvm": "/empty"}
    run = {name: payload(name) for name in ("gpu", "model", "stack")}
    answers = trial.serve([
        container("whole", {**nodes, **folders()}, False, run),
        container("privileged", nodes, False, {"gpu": payload("gpu")}, unprivileged=False),
    ])  # fmt: skip
    note_starts(report, answers)
    for name, unprivileged in (("whole", True), ("privileged", False)):
        report.begin(f"{name} container, no GPU")
        facts = facts_of(answers[name], "gpu", "gpu")
        check_container(report, facts, unprivileged)
        report.compare("count", facts["count"], 0, "the test")
        report.compare("hardware", "no_nvidia_hardware" in codes(facts), True, f"the test; said {codes(facts)}")
        nodes_wanted = {"missing": ["/dev/nvidia-uvm-tools"], "not_char": ["/dev/nvidia-uvm"], "unreadable": []}
        report.compare("device nodes", facts["device_nodes"], nodes_wanted, "the test")
    check_model_and_stack(report, answers["whole"], trial.on_host("stack", "stack"))


def note_starts(report: Report, answers: dict[str, dict[str, Any]]) -> None:
    report.begin("containers")
    report.note("systemd up after", ", ".join(f"{name} {one['seconds']} s ({one['state']})" for name, one in answers.items()))


def check_gpus(report: Report, trial: Trial, torch: dict[str, Any] | None) -> dict[str, Any]:
    """Returns what the container says."""
    host = trial.on_host("gpu", "gpu")
    cards = [device["node"] for device in host["devices"]]
    nodes = {path: path for path in (*cards, *(path for path in CONTROL if Path(path).is_char_device()))}
    others = {path: path for path in nodes if path != cards[0]}
    trial.bind("/driver", str(driver_folder(trial.work)))
    trial.bind("/nvidia-smi", str(shutil.which("nvidia-smi")))
    gpu = {"gpu": payload("gpu")}
    whole = {
        **gpu, "hidden": ["env", "CUDA_VISIBLE_DEVICES=none", *payload("gpu")], "smi": ["/usr/local/bin/nvidia-smi", "-q", "-x"],
        "model": payload("model"), "stack": payload("stack"),
    }  # fmt: skip
    answers = trial.serve([
        container("whole", {**nodes, **folders(), "/usr/local/bin/nvidia-smi": "/nvidia-smi"}, True, whole),
        container("privileged", nodes, True, gpu, unprivileged=False),
        container("without-card", others, True, gpu),
        container("with-file", {**others, cards[0]: "/empty"}, True, gpu),
        container("without-library", nodes, False, gpu),
    ])  # fmt: skip
    compare_gpus(report, answers, host, trial.on_host("stack", "stack"), torch)
    inside = facts_of(answers["whole"], "gpu", "gpu")
    check_held(report, trial, inside, nodes)
    return inside


def compare_gpus(
    report: Report, answers: dict[str, Any], host: dict[str, Any], host_stack: dict[str, Any], torch: dict[str, Any] | None
) -> None:
    note_starts(report, answers)
    inside = facts_of(answers["whole"], "gpu", "gpu")
    report.begin("unprivileged container against the host")
    same_devices(report, inside, host)
    report.compare("problems", of_the_gpus(inside), of_the_gpus(host), "the host")
    check_container(report, inside, True)
    report.compare("accessible to the service user", [device["accessible"] for device in inside["devices"]],
                   [True] * host["count"], "mode 0666")  # fmt: skip
    report.compare("device nodes", inside["device_nodes"], {"missing": [], "not_char": [], "unreadable": []}, "the test")
    if torch:
        found = [device["compute_capability"] for device in inside["devices"]]
        report.compare("compute capabilities", found, [gpu["capability"] for gpu in torch["gpus"]], "torch on the host")
    report.begin("unprivileged container against nvidia-smi in it")
    smi = answers["whole"]["run"]["smi"]
    report.compare("nvidia-smi runs", smi["status"], 0, f"the test; it said {smi['out'][-200:]} {smi['err'][-200:]}")
    if smi["status"] == 0:
        check_gpu(report, inside, ElementTree.fromstring(smi["out"]))
    report.begin("with CUDA_VISIBLE_DEVICES of nonsense")
    same_devices(report, facts_of(answers["whole"], "hidden", "gpu"), inside)
    check_model_and_stack(report, answers["whole"], host_stack)
    report.begin("privileged container")
    privileged = facts_of(answers["privileged"], "gpu", "gpu")
    same_devices(report, privileged, host)
    report.compare("problems", of_the_gpus(privileged), of_the_gpus(host), "the host")
    check_container(report, privileged, False)
    report.begin("containers that lack something")
    absent = "no_gpu_here" if host["count"] == 1 else "device_node_absent"
    for name, code in (("without-card", absent), ("with-file", "device_node_not_char"), ("without-library", "driver_library_missing")):
        said = codes(facts_of(answers[name], "gpu", "gpu"))
        report.compare(f"{name}: {code}", code in said, True, f"the test; said {said}")


def check_held(report: Report, trial: Trial, quiet: dict[str, Any], nodes: dict[str, str]) -> None:
    """Somebody on the host holds 1 GiB, whom a container cannot see."""
    report.begin("held from outside")
    with held_gpu() as torch:
        if torch is None:
            report.not_tried("a card held from outside", "no PyTorch that sees the GPU")
            return
        answer = trial.serve([container("busy", nodes, True, {"gpu": payload("gpu_auto")})])["busy"]
        facts = facts_of(answer, "gpu", "gpu")
        first = facts["devices"][0]
        grown = (first["memory_used_mib"] or 0) - (quiet["devices"][0]["memory_used_mib"] or 0)
        report.compare("memory grew by 1 GiB or more", grown >= 1024, True, f"torch; grew by {grown} MiB")
        known = bool(first["processes"]) or first["holder_unknown"]
        report.compare("the holder is named, or said to be unknown", known, True, "the test")
        report.compare("reported", bool({*codes(facts)} & {"gpu_busy", "gpu_held_unknown"}), True, f"the test; said {codes(facts)}")
        report.note("found", [problem["found"] for problem in facts["problems"] if problem["code"].startswith("gpu_")])
