# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What proxmoxer's local backend really hands over, with a pvesh that is a shell script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._pve_api import Api, ApiError, Stale
from proxmoxer import ProxmoxAPI

UPID = "UPID:kpro6:0000C350:00016D33:692C5B2F:vzcreate:200:root@pam:"
STATUS = """case $2 in
*/status) echo '{"status":"stopped","exitstatus":"%s"}'; exit 0;;
*/log) echo '[{"n":1,"t":"the reason"}]'; exit 0;;
esac
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Api(ProxmoxAPI(backend="local", timeout=2), "kpro6", 10, lambda: now[0], sleep, [])


def pvesh(tmp_path: Path, body: str) -> None:
    (tmp_path / "pvesh").write_text(f"#!/bin/sh\n{body}")
    (tmp_path / "pvesh").chmod(0o755)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("""echo '{"status":"running"}'""", {"status": "running"}),
        ("""echo 'perl: warning: Setting locale failed.' >&2; echo '{"status":"running"}'""", {"status": "running"}),
        ("""echo noise; echo '{"status":"running"}'""", {"status": "running"}),
        ("echo '[]'", []),
    ],
)
def test_answers(api: Api, tmp_path: Path, body: str, expected: object) -> None:
    pvesh(tmp_path, body)
    assert api.get("lxc/200/status/current") == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo \"Configuration file 'nodes/kpro6/lxc/200.conf' does not exist\" >&2; exit 2", "does not exist"),
        ("exit 255", "no answer"),
        ("echo '400 Parameter verification failed.' >&2; exit 2", "400 Parameter"),
        ("exec sleep 4", "no answer within 2 s"),
        ("kill -9 $$", "no answer"),
    ],
)
def test_refused_reads(api: Api, tmp_path: Path, body: str, words: str) -> None:
    pvesh(tmp_path, body)
    with pytest.raises(ApiError, match=words):
        api.get("lxc/200/config")


def test_the_call_is_the_one_that_pvesh_understands(api: Api, tmp_path: Path) -> None:
    pvesh(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/called\n')
    api.change("put", "lxc/200/config", dev0="/dev/nvidia0,mode=0666", delete="dev1,mp0")
    called = (tmp_path / "called").read_text().split("\n")
    assert called[:2] == ["set", "/nodes/kpro6/lxc/200/config"]
    assert called[2:6] == ["-dev0", "/dev/nvidia0,mode=0666", "-delete", "dev1,mp0"]


@pytest.mark.parametrize(
    "output",
    [
        f"echo '\"{UPID}\"'",
        f"echo extracting archive; echo '\"{UPID}\"'",
        f"echo 'a warning' >&2; echo '\"{UPID}\"'",
        f"echo 'unable to create CT 200' >&2; echo '\"{UPID}\"'; exit 255",
    ],
)
@pytest.mark.parametrize(("status", "good"), [("OK", True), ("WARNINGS: 2", True), ("unable to create CT 200", False)])
def test_only_the_end_of_the_task_counts(api: Api, tmp_path: Path, output: str, status: str, good: bool) -> None:
    pvesh(tmp_path, STATUS % status + output)
    if good:
        api.change("post", "lxc", vmid=200)
    else:
        with pytest.raises(ApiError, match=r"(?s)unable to create CT 200.*the reason"):
            api.change("post", "lxc", vmid=200)
    assert api.tasks == [{"upid": UPID, "type": "vzcreate", "exitstatus": status}]


def test_a_task_that_never_ends_is_given_up(api: Api, tmp_path: Path) -> None:
    pvesh(tmp_path, f"""case $2 in */status) echo '{{"status":"running"}}';; *) echo '"{UPID}"';; esac""")
    with pytest.raises(ApiError, match="still runs after 10 s"):
        api.change("post", "lxc", vmid=200)


def test_a_changed_configuration_is_told_apart(api: Api, tmp_path: Path) -> None:
    pvesh(tmp_path, "echo 'detected modified configuration - file changed by other user? Try again.' >&2; exit 255")
    with pytest.raises(Stale):
        api.change("put", "lxc/200/config", cores=2)


def test_a_lock_is_waited_for_and_then_named(api: Api, tmp_path: Path) -> None:
    pvesh(tmp_path, f"echo x >>{tmp_path}/tries; echo 'CT is locked (backup)' >&2; exit 255")
    with pytest.raises(ApiError, match=r"locked \(backup\)"):
        api.change("put", "lxc/200/config", cores=2)
    assert len((tmp_path / "tries").read_text().split()) == 6
