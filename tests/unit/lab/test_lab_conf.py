# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files /etc/pve/lxc/<vmid>.conf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pveshim.conf import Conf, parse, render

CASES = [
    ("", {}, []),
    ("cores: 2\ncores: 4\n", {"cores": "4"}, []),
    ("nonsense\ncores: 2\n  \n", {"cores": "2"}, []),
    ("cores: 2\n#first\n#second %25\n", {"cores": "2", "description": "first\nsecond %\n"}, []),
    ("lxc.mount.entry: /a b none bind 0 0\ncores: 2\n", {"cores": "2"}, [("lxc.mount.entry", "/a b none bind 0 0")]),
    ("lxc.prlimit.nofile = 1024\n", {}, [("lxc.prlimit.nofile", "1024")]),
    ("cores: 2\n\n[snapshot1]\ncores: 8\n", {"cores": "2"}, []),
    ("dev0: /dev/nvidia0,mode=0666\n", {"dev0": "/dev/nvidia0,mode=0666"}, []),
]


@pytest.mark.parametrize(("text", "values", "lxc"), CASES)
def test_parse(text: str, values: dict[str, str], lxc: list[tuple[str, str]]) -> None:
    conf = parse(text)
    assert (conf.values, conf.lxc) == (values, lxc)


def test_render_moves_comments_to_the_top_and_raw_lines_to_the_end() -> None:
    """The behaviour that makes blockinfile on these files grow without end."""
    text = "cores: 2\n#BEGIN block\nlxc.mount.entry: /a b none bind 0 0\n#END block\nmemory: 64\n"
    assert render(parse(text)).splitlines() == [
        "#BEGIN block",
        "#END block",
        "cores: 2",
        "memory: 64",
        "lxc.mount.entry: /a b none bind 0 0",
    ]


def test_pending_is_a_section_of_its_own() -> None:
    conf = Conf({"cores": "2", "mp0": "/a,mp=/a"}, pending={"features": "nesting=1"}, pending_delete=["mp0"])
    text = render(conf)
    assert text == "cores: 2\nmp0: /a,mp=/a\n\n[pve:pending]\ndelete: mp0\nfeatures: nesting=1\n"
    again = parse(text)
    assert again.values == conf.values
    assert again.effective() == {"cores": "2", "features": "nesting=1"}
    assert again.apply_pending()
    assert render(again) == "cores: 2\nfeatures: nesting=1\n"
    assert not again.apply_pending()


def test_digest_follows_the_text() -> None:
    assert parse("cores: 2\n").digest != parse("cores: 3\n").digest
    assert parse("cores: 2\n").digest == parse("cores: 2\n").digest


@given(st.text())
def test_any_text_is_read_and_settles(text: str) -> None:
    once = render(parse(text))
    assert render(parse(once)) == once


@given(st.text(st.characters(blacklist_categories=["Cs"])).filter(lambda text: text.strip() == text and text))
def test_description_survives(text: str) -> None:
    lines = "\n".join(text.splitlines())
    found = parse(render(Conf({"description": lines}))).values.get("description", "")
    assert found.rstrip("\n") == lines.rstrip("\n")
