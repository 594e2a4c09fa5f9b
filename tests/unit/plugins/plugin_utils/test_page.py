# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _fleet, _knowledge, _page

sys.path.insert(0, str(Path(__file__).parent))
import fleet_kit as kit

EMPTY = {"meta", "br", "col"}
ELEMENTS = {
    *EMPTY,
    *("html", "head", "title", "style", "body", "main", "h1", "h2", "h3", "p", "div", "table", "thead", "tbody", "tr", "th", "td"),
    *("strong", "span", "code", "pre", "details", "summary", "dl", "dt", "dd"),
}


class Reader(HTMLParser):
    """Reads a page as a browser does, and fails where the elements do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.columns: list[int] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _value in attrs}
        if tag == "tr":
            self.columns.append(0)
        if tag in ("th", "td"):
            self.columns[-1] += 1
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


def page(*machines: _fleet.Machine) -> str:
    return _page.render(_fleet.document(_knowledge.load(), machines))


def fleet() -> list[_fleet.Machine]:
    return [
        *(kit.machine(f"kpro{number}") for number in range(1, 4)),
        kit.machine("venv", stack=kit.VENV),
        kit.machine("old", kit.OLD_DRIVER, {"sglang_version": "0.5.12"}),
        kit.machine("wrong", {"gpu.devices": []}),
        _fleet.Machine("deaf", message="gpu_facts: no interpreter"),
        _fleet.Machine("gone", message="no route", unreachable=True),
    ]


def test_the_page_holds_every_class_with_its_reasons() -> None:
    read = Reader(page(*fleet()))
    for words in ("kpro[1-3]", "3 hosts", "GPU-kpro2-7", "/root/venv: torch 2.11.0+cu128", "8 hosts in 6 classes: 4 with a plan"):
        assert words in read.text, words
    for words in (
        "way out",
        "driver 580 or newer",
        "gpu.devices is empty",
        "gpu_facts: no interpreter",
        "gone: no route",
        "--enable-metrics",
    ):
        assert words in read.text, words
    plan = _fleet.document(_knowledge.load(), [kit.machine("a")])["classes"][0]["plan"]
    for entry in plan["decisions"] + plan["rejected"]:
        assert entry["because"] in read.text and entry["source"] in read.text
    assert read.elements <= ELEMENTS
    assert set(read.columns) <= {3, 4, 6}


def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    text = page(*fleet())
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=|javascript:|<script|<link|<img", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert not {name for name in Reader(text).attributes if name.startswith("on")}


def test_no_name_becomes_markup() -> None:
    hostile: dict[str, Any] = {"gpu.devices.0.name": kit.HOSTILE, "model.path": f"/{kit.HOSTILE}", "gpu.platform.machine": "x86_64"}
    wish = {"served_model_name": kit.HOSTILE}
    stack = {"path": kit.HOSTILE, "distributions": {"torch": kit.HOSTILE}}
    text = page(
        kit.machine(kit.HOSTILE, hostile, wish, stack),
        kit.machine(f"{kit.HOSTILE}2", {"gpu.driver.version": kit.HOSTILE}),
        kit.machine(f"{kit.HOSTILE}3", hostile | {"gpu.devices.1.lost": True}, {"sglang_version": "0.5.12"}),
        _fleet.Machine(f"{kit.HOSTILE}4", message=kit.HOSTILE),
        _fleet.Machine(f"{kit.HOSTILE}5", message=kit.HOSTILE, unreachable=True, remarks=(kit.HOSTILE,)),
    )
    assert "<script" not in text and "\x1b" not in text
    read = Reader(text)
    assert read.elements <= ELEMENTS
    assert read.text.count("<script>alert(1)</script>") >= 10


def test_the_same_machines_give_the_same_page_in_any_order() -> None:
    assert page(*fleet()) == page(*reversed(fleet()))
