# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each bad input: one clear message, non-zero exit, nothing half-made, and the next run is as before."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from site_runs import LAB_STATE, Run, in_container, in_node, lab, site

SERVING = "systemctl show 'inference@*' inference-gateway --property Id,MainPID,ActiveState"
OTHER_RELEASE = ("-e", "inference_sglang_version=0.5.12.post1")
INDEX = "http://10.99.0.1:8099"
STACKS = "ls /var/lib/inference/stacks; readlink /var/lib/inference-state/current"


def refused(run: Run, *fragments: str) -> None:
    assert run.status != 0, run.output
    assert "Traceback" not in run.output
    for fragment in fragments:
        assert fragment in run.said, f"{fragment!r} is not in:\n{run.output}"


@pytest.fixture(autouse=True)
def keeps_serving(request: pytest.FixtureRequest) -> Iterator[None]:
    """What serves keeps serving with the same processes."""
    before = in_container(SERVING)
    yield
    if "stops_a_server" not in request.keywords:
        assert in_container(SERVING) == before


@pytest.fixture
def as_before() -> Iterator[None]:
    """A run without the bad input changes nothing: for those that got as far as a host."""
    yield
    run = site()
    assert run.status == 0, run.output
    assert run.changed == []


def test_unknown_variable_and_wrong_type_are_listed_together_before_any_contact() -> None:
    run = site("-e", "gateway_prot=8001", "-e", "inference_health_timeout=soon")
    refused(run, "gateway_prot", "did you mean gateway_port?", "inference_health_timeout", "nothing was touched")
    assert "Prepare the nodes" not in run.output


def test_missing_model_folder() -> None:
    run = site("-e", "model_path=/var/lib/inference/models/none")
    refused(run, "Found nothing at /var/lib/inference/models/none", "wanted the folder of a model")
    assert not run.changed


@pytest.mark.usefixtures("as_before")
def test_a_container_id_of_something_else_is_never_touched() -> None:
    in_node("pct create 210 local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst --hostname somebody --unprivileged 1 --rootfs local-lvm:2")
    try:
        before = in_node("cat /etc/pve/lxc/210.conf")
        run = site("-e", "pve_container_vmid=210")
        refused(run, "210", "somebody", "adopt")
        assert in_node("cat /etc/pve/lxc/210.conf") == before
    finally:
        in_node("pct destroy 210")


def test_a_node_that_does_not_answer() -> None:
    run = site("-e", "ansible_host=10.99.0.99", "-e", "ansible_ssh_timeout=3")
    refused(run, "10.99.0.99", "UNREACHABLE")


class TamperingIndex(BaseHTTPRequestHandler):
    """The lab's index, but one wheel's bytes are not those that the index promised."""

    def do_GET(self) -> None:
        headers = {name: self.headers[name] for name in ("Accept", "Range") if self.headers[name]}
        with urllib.request.urlopen(urllib.request.Request(INDEX + self.path, headers=headers), timeout=30) as answer:
            body = answer.read()
            status, kind = answer.status, answer.headers["Content-Type"]
        if "/sglang-" in self.path and self.path.endswith(".whl"):
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *dummy: object) -> None:
        pass


@pytest.mark.usefixtures("as_before")
def test_a_wheel_with_a_wrong_hash(tmp_path: Path) -> None:
    before = in_container(STACKS)
    server = ThreadingHTTPServer(("10.99.0.1", 0), TamperingIndex)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        index = f"http://10.99.0.1:{server.server_port}/simple"
        run = site(*OTHER_RELEASE, "-e", f"stack_index_url={index}", "-e", f"stack_lock_dir={tmp_path}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    refused(run, "sglang-0.5.12.post1", "sha256")
    assert in_container(STACKS) == before
    assert "sglang-0.5.12.post1" not in in_node("ls -A /var/lib/inference/wheels")


@pytest.mark.usefixtures("as_before")
def test_a_wheel_without_code_for_the_gpu(tmp_path: Path) -> None:
    """Metadata, hash and import are right: only the look into the binaries can catch this one."""
    before = in_container("readlink /var/lib/inference-state/current")
    run = site(*OTHER_RELEASE, "-e", f"stack_index_url={INDEX}/wrong/simple", "-e", f"stack_lock_dir={tmp_path}")
    refused(run, "common_ops", "12.0")
    assert in_container("readlink /var/lib/inference-state/current") == before


@pytest.mark.stops_a_server
def test_a_gpu_held_by_somebody_else() -> None:
    in_container("systemctl stop inference@3")
    lab("fault", "kpro6", "busy", "3")
    try:
        run = site()
        refused(run, "GPU 3", "somebody who cannot be seen from here (91")
        assert "inactive" in in_container("systemctl is-active inference@3 || true")
    finally:
        lab("fault", "kpro6", "none")
    run = site()
    assert run.status == 0, run.output
    assert [task for task, dummy_host in run.changed] == ["Run one server per GPU"]


def test_the_lab_keeps_its_secrets_out_of_records() -> None:
    key = (LAB_STATE / "gateway.key").read_text(encoding="ascii").strip()
    run = site("-vvv", "--diff")
    assert run.status == 0
    assert key not in run.output
    records = Path(__file__).parents[2] / "inventory" / "lab" / "records"
    texts = [path.read_text(encoding="utf-8") for path in records.rglob("*") if path.is_file()]
    assert texts
    assert not [text for text in texts if key in text]
