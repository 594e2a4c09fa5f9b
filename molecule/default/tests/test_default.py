# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What serves after converge: looked at from outside, and from the simulated cards' own log."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

testinfra_hosts = ["ansible://kpro6-200?force_ansible=True"]

ENDPOINT = "http://10.99.0.200:8000"
KEY = Path("/var/lib/bwlab/gateway.key").read_text(encoding="ascii").strip()
INSTANCES = range(8)
PROPERTIES = ("ActiveState", "MainPID", "NRestarts", "User", "NoNewPrivileges", "ProtectSystem")


def ask(prompt: str, key: str | None = KEY, timeout: float = 30) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = {"model": "Qwen3.6-27B", "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(f"{ENDPOINT}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return dict(json.load(response))


def units(host: Any) -> dict[int, dict[str, str]]:
    """Return the properties of every instance, by its number."""
    names = " ".join(f"inference@{index}.service" for index in INSTANCES)
    out = host.check_output(f"systemctl show {names} --property {','.join(('Id', *PROPERTIES))}")
    blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in out.strip().split("\n\n")]
    return {int(re.sub(r"\D", "", block["Id"])): block for block in blocks}


def eventually(condition: Callable[[], Any], timeout: float = 90) -> Any:
    """Return the first true answer of condition. Errors of a service that is still coming up count as not yet."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            last: Any = condition()
        except (OSError, AssertionError) as error:
            last = None
            reason = str(error)
        else:
            reason = repr(last)
        if last:
            return last
        assert time.monotonic() < deadline, f"not reached in {timeout:g} s; last: {reason}"
        time.sleep(0.5)


def healthy_workers() -> int:
    with urllib.request.urlopen(f"{ENDPOINT}/readiness", timeout=5) as response:
        return int(json.load(response)["healthy_workers"])


def test_eight_instances_on_eight_cards(host: Any) -> None:
    """The cards' own log counts: an environment file only says what somebody wished."""
    running = units(host)
    assert [block["ActiveState"] for block in running.values()] == ["active"] * 8, host.run("journalctl -n 40 -u 'inference@*'").stdout
    log = host.check_output("cat /proc/driver/nvidia/lab/opens.log")
    opened = {int(pid): uuid for uuid, pid in re.findall(r"^\S+ (GPU-\S+) pid=(\d+) ", log, re.MULTILINE)}
    cards = {index: opened.get(int(block["MainPID"])) for index, block in running.items()}
    assert None not in cards.values(), cards
    assert len(set(cards.values())) == 8, cards


def test_units_run_hardened_and_without_root(host: Any) -> None:
    for block in units(host).values():
        assert (block["User"], block["NoNewPrivileges"], block["ProtectSystem"]) == ("inference", "yes", "strict")


def test_no_secret_where_others_can_read(host: Any) -> None:
    assert KEY not in host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert KEY not in host.check_output("cat /etc/systemd/system/inference*")
    assert host.file("/etc/inference/gateway.key").mode == 0o640


def test_servers_listen_on_loopback_only(host: Any) -> None:
    listening = host.check_output("ss -Hltn").splitlines()
    addresses = {line.split()[3] for line in listening}
    assert {f"127.0.0.1:{30000 + index}" for index in INSTANCES} <= addresses
    assert not [address for address in addresses if re.search(r":3000\d$", address) and not address.startswith("127.0.0.1:")]


def test_the_endpoint_wants_its_key() -> None:
    for key in (None, "wrong-key-wrong-key"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask("hello", key=key)
        assert refused.value.code == 401


def test_more_than_one_worker_serves() -> None:
    # All at once: one after the other, the gateway rightly keeps equal beginnings on the worker that has them in its cache.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [f"{number} is the question" for number in range(80)]))
    assert len({answer["system_fingerprint"] for answer in answers}) >= 2


def test_a_killed_worker_comes_back_and_the_others_stay(host: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = units(host)
    stop = threading.Event()
    outcomes: list[str | None] = []

    def client(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            try:
                ask(f"client {number} request {count}")
                outcomes.append(None)
            except OSError as error:
                outcomes.append(str(error))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    try:
        eventually(lambda: len(outcomes) > 50)
        host.check_output("systemctl kill --signal=KILL inference@3.service")
        eventually(lambda: units(host)[3]["MainPID"] not in ("0", before[3]["MainPID"]))
        eventually(lambda: healthy_workers() == 8)
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    after = units(host)
    failed = [outcome for outcome in outcomes if outcome]
    with capsys.disabled():
        print(f"\nworker killed under 8 clients: {len(outcomes)} requests, {len(failed)} failed {sorted(set(failed))}")
    assert int(after[3]["NRestarts"]) > int(before[3]["NRestarts"])
    assert {index: block["MainPID"] for index, block in after.items() if index != 3} == {
        index: block["MainPID"] for index, block in before.items() if index != 3
    }
    # The gateway retries what it had not begun to answer; more than the requests in flight on one worker is a fault.
    assert len(failed) <= 8


def test_a_restarted_container_serves_again_by_itself(host: Any) -> None:
    boot = host.check_output("cat /proc/1/stat").split()[21]
    node = host.get_host("ansible://kpro6?force_ansible=True", ansible_inventory=host.backend.ansible_inventory)
    node.check_output("pct reboot 200")

    def serves() -> bool:
        return healthy_workers() == 8 and host.check_output("cat /proc/1/stat").split()[21] != boot

    eventually(serves, timeout=120)
    assert ask("after the restart")["choices"]
    assert len({block["MainPID"] for block in units(host).values()}) == 8
