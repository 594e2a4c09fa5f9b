# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the configuration keys accept, and the words of their refusal."""

from __future__ import annotations

import pytest
from pveshim.errors import NotSimulated, ParameterError
from pveshim.schema import as_json, check, parse_properties

GOOD = [
    ("dev0", "/dev/nvidia0"),
    ("dev255", "path=/dev/nvidia-caps/nvidia-cap1,mode=0666,uid=0,gid=44"),
    ("mp0", "/var/lib/inference,mp=/var/lib/inference,ro=1"),
    ("net0", "name=eth0,bridge=vmbr0,ip=10.99.0.200/24,gw=10.99.0.1"),
    ("features", "nesting=1,keyctl=1"),
    ("memory", "16"),
    ("cores", "8192"),
    ("hostname", "llm.lab"),
    ("startup", "order=1,up=5"),
    ("tags", "blackwell-inference;a"),
    ("lock", "backup"),
]
BAD = [
    ("dev0", "/dev/nvidia0,mode=666", "dev0.mode: value does not match the regex pattern"),
    ("dev0", "/dev/nvidia0,mode=0888", "dev0.mode: value does not match the regex pattern"),
    ("dev0", "/etc/passwd", "dev0.path: not a valid passthrough device path"),
    ("dev0", "/dev/../etc/passwd", "dev0.path: not a valid passthrough device path"),
    ("dev256", "/dev/null", "dev256: property is not defined in schema"),
    ("dev0", "/dev/null,frob=1", "dev0.frob: property is not defined in schema"),
    ("dev0", "/dev/null,/dev/zero", "does not define a default key"),
    ("mp0", "/srv", "mp0.mp: property is missing and it is not optional"),
    ("mp0", "srv,mp=/srv", "mp0.volume: invalid volume"),
    ("net0", "bridge=vmbr0", "net0.name: property is missing and it is not optional"),
    ("net0", "name=eth0,ip=10.99.0.200", "net0.ip: invalid format"),
    ("memory", "15", "memory: value must have a minimum value of 16"),
    ("memory", "2G", "memory: type check ('integer') failed - got '2G'"),
    ("cores", "8193", "cores: value must have a maximum value of 8192"),
    ("onboot", "maybe", "onboot: type check ('boolean') failed - got 'maybe'"),
    ("hostname", "a_b", "hostname: invalid format"),
    ("lock", "mine", "lock: value 'mine' does not have a value in the enumeration"),
    ("frob", "1", "frob: property is not defined in schema"),
]


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_accepts(key: str, value: str) -> None:
    assert check({key: value}) == {key: value}


@pytest.mark.parametrize(("key", "value", "words"), BAD)
def test_refuses(key: str, value: str, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check({key: value})
    assert str(caught.value).startswith("400 Parameter verification failed.\n")
    assert words in str(caught.value)
    assert caught.value.code == 2


def test_every_finding_is_listed() -> None:
    with pytest.raises(ParameterError) as caught:
        check({"memory": "x", "cores": "0"})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("text", ["1", "on", "yes", "true", "True"])
def test_booleans_are_stored_as_numbers(text: str) -> None:
    assert check({"onboot": text}) == {"onboot": "1"}


def test_a_real_key_without_behaviour_is_refused_by_the_lab_itself() -> None:
    with pytest.raises(NotSimulated, match="bwlab: container option 'hookscript'"):
        check({"hookscript": "local:snippets/x"})


def test_properties() -> None:
    assert parse_properties("a,b=1", "first") == {"first": "a", "b": "1"}
    with pytest.raises(ValueError, match="duplicate key"):
        parse_properties("b=1,b=2")


@pytest.mark.parametrize(("key", "value", "shown"), [("cores", "2", 2), ("onboot", "1", 1), ("hostname", "2", "2")])
def test_json_types(key: str, value: str, shown: object) -> None:
    assert as_json(key, value) == shown
