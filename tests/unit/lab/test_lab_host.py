# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's own pure parts on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from bwlab import cleanup, cli, commands, image, keys, lxc, mirror, mounts, names, node, nodefiles, simulation
from bwlab.proc import LabError

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
"""
SOURCES = [
    ([("a.sources", DEB822)], "http://mirror.example/debian"),
    ([("a.sources", DEB822 + "Enabled: no\n")], None),
    ([("a.sources", DEB822.replace("Types: deb", "Types: deb-src"))], None),
    ([("a.sources", "Types: deb\nURIs: http://m.example/debian-security\nComponents: main\n")], None),
    ([("a.list", "deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ trixie main contrib")], "http://m.example/debian"),
    ([("a.list", "# deb http://m.example/debian trixie main")], None),
    ([("a.list", "deb http://m.example/ubuntu noble main")], None),
    ([("a.list", "deb http://other.example/apt x main"), ("b.sources", DEB822)], "http://mirror.example/debian"),
    ([("a.sources", "no field at all\n\n\n")], None),
    ([], None),
]


@pytest.mark.parametrize(("sources", "found"), SOURCES)
def test_mirror(sources: list[tuple[str, str]], found: str | None) -> None:
    assert mirror.debian_mirror(sources) == found


def test_mounts_below_are_deepest_first_and_nothing_beside() -> None:
    text = "\n".join(
        f"1 1 0:1 / {point} rw - ext4 /dev/x rw" for point in ("/", "/var/lib/bwlab", "/var/lib/bwlab/a\\040b", "/var/lib/bwlab2")
    )
    assert mounts.mounts_below(Path("/var/lib/bwlab"), text) == ["/var/lib/bwlab/a b", "/var/lib/bwlab"]


def test_known_hosts_hold_one_key_a_node() -> None:
    first = keys.with_host("", ["10.99.0.11", "kpro6"], "ssh-ed25519 AAA")
    second = keys.with_host(first, ["10.99.0.12", "kpro7"], "ssh-ed25519 BBB")
    third = keys.with_host(second, ["10.99.0.11", "kpro6"], "ssh-ed25519 CCC")
    assert third == "10.99.0.12,kpro7 ssh-ed25519 BBB\n10.99.0.11,kpro6 ssh-ed25519 CCC\n"
    assert keys.with_host(third, ["kpro7"], None) == "10.99.0.11,kpro6 ssh-ed25519 CCC\n"


def test_names() -> None:
    assert names.node_names(3) == ["kpro6", "kpro7", "kpro8"]
    assert [names.node_address(name) for name in names.node_names(2)] == ["10.99.0.11", "10.99.0.12"]
    assert names.node_index("other") == -1
    # A network link's name has at most 15 characters.
    assert max(len(names.veth(name)) for name in names.node_names(names.MAX_NODES)) <= 15


@pytest.mark.parametrize(
    ("words", "own", "inner"),
    [
        (["shell", "kpro6"], ["shell", "kpro6"], []),
        (["shell", "kpro6", "200", "--", "ls", "--", "-l"], ["shell", "kpro6", "200"], ["ls", "--", "-l"]),
    ],
)
def test_split_command(words: list[str], own: list[str], inner: list[str]) -> None:
    assert cli.split_command(words) == (own, inner)


@pytest.mark.parametrize("words", [["up", "--nodes", "0"], ["up", "--nodes", "99"], ["up", "--nodes", "x"], ["frob"], []])
def test_bad_command_lines(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parser().parse_args(words)
    assert caught.value.code == 2


@pytest.mark.parametrize("name", ["kpro7", "../nodes/kpro6", "kpro", ""])
def test_a_name_that_is_no_node_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setattr(names, "STATE", tmp_path)
    monkeypatch.setattr(names, "LXC_PATH", tmp_path / "lxc")
    (tmp_path / "nodes/kpro6").mkdir(parents=True)
    (tmp_path / "nodes/kpro6/complete").touch()
    node.require("kpro6")
    with pytest.raises(LabError, match=r"there is no node .*; nodes of this lab: kpro6$"):
        node.require(name)


@pytest.mark.parametrize(
    ("kind", "target", "wanted"),
    [
        ("mig", None, "found no target; wanted: lab fault kpro6 mig GPU"),
        ("closed-module", "3", "found 3; wanted: lab fault kpro6 closed-module"),
        ("device-file", None, "found no target; wanted: lab fault kpro6 device-file VMID/DEVICE"),
    ],
)
def test_a_fault_needs_its_target(monkeypatch: pytest.MonkeyPatch, kind: str, target: str | None, wanted: str) -> None:
    monkeypatch.setattr(node, "is_complete", lambda name: True)
    monkeypatch.setattr(lxc, "init_pid", lambda name: 1)
    with pytest.raises(LabError, match=f"^{wanted}$"):
        commands.fault("kpro6", kind, target)


def test_faults_end_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card's fault can only be ended when the driver is back."""
    found = ["library 200", "busy GPU-1", "lost GPU-2", "no-driver"]
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(simulation, "faults", lambda node: found)
    monkeypatch.setattr(simulation, "_fault", lambda node, *words: calls.append(words))
    simulation.end_faults("kpro6", "none")
    assert calls == [
        ("fault.py", "end", "no-driver"),
        ("fault.py", "end", "busy", "GPU-1"),
        ("fault.py", "end", "lost", "GPU-2"),
        ("container_fault.py", "end", "library", "200"),
    ]
    calls.clear()
    simulation.end_faults("kpro6", "lost")
    assert calls == [("fault.py", "end", "lost", "GPU-2")]


@pytest.mark.parametrize(("unified", "line"), [(True, "lxc.cgroup2.devices.allow = a"), (False, "lxc.cgroup.devices.allow = a")])
def test_node_config(unified: bool, line: str) -> None:
    lines = lxc.render_config("kpro6", template_tarball="/t", unified=unified).splitlines()
    assert line in lines
    assert "lxc.net.0.veth.pair = bwlab-kpro6" in lines
    binds = [text for text in lines if text.startswith("lxc.mount.entry") and "none bind" in text]
    assert binds and all("bind,ro" in text for text in binds)


def test_recipe_key_follows_the_recipe() -> None:
    assert image.recipe_key({"a": 1}) != image.recipe_key({"a": 2})
    assert image.template_tarball().name != image.node_tarball().name


def test_node_files_hold_no_secret_and_no_shared_key() -> None:
    files = nodefiles.files("kpro6", "ssh-ed25519 AAA operator@lab\n")
    assert not [path for path in files if path.startswith("etc/ssh/ssh_host")]
    assert files["root/.ssh/authorized_keys"] == ("ssh-ed25519 AAA operator@lab\n", 0o600)
    assert "10.99.0.11/24" in files["etc/systemd/system/bwlab-network.service"][0]


def test_status_table_says_what_to_do_about_a_new_key() -> None:
    entry = {
        "node": "kpro6",
        "address": "10.99.0.11",
        "power": "on",
        "host_key": "SHA256:x",
        "trusted": False,
        "failed_units": ["a.service"],
        "faults": [],
        "containers": [{"vmid": "200", "status": "running", "lock": "", "name": "llm"}],
    }
    facts = {"nodes": [entry], "index": None, "ssh_key": "k", "known_hosts": "h"}
    text = commands.status_table(facts)
    assert "lab trust kpro6" in text
    assert "unit a.service has failed" in text
    assert "container 200 llm: running" in text
    assert commands.status_table({"nodes": []}) == "the lab is down"


def test_control_groups_of_kept_nodes_and_of_others_are_not_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("lxc.payload.bwlab-kpro6", "lxc.monitor.bwlab-kpro7", "lxc.payload.other", "lxc.payload.bwlab-kpro7-1/a"):
        (tmp_path / "memory" / name).mkdir(parents=True)
    monkeypatch.setattr(cleanup, "CGROUPS", tmp_path)
    monkeypatch.setattr(cleanup.lxc, "host_is_unified", lambda: False)
    found = [str(path.relative_to(tmp_path / "memory")) for path in cleanup.control_groups(["kpro6"])]
    assert sorted(found) == ["lxc.monitor.bwlab-kpro7", "lxc.payload.bwlab-kpro7-1", "lxc.payload.bwlab-kpro7-1/a"]
    assert found.index("lxc.payload.bwlab-kpro7-1/a") < found.index("lxc.payload.bwlab-kpro7-1")
    assert len(cleanup.control_groups()) == 4
