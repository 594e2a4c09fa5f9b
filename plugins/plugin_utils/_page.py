# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a fleet as one page: no script, no network, and nothing in it that a host's name could turn into markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._fleet_report import counted, names, notes, stack, summary
from ansible_collections.blackwell.inference.plugins.plugin_utils._report import card, printable

STYLE = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1c2430; --soft: #5b6675; --line: #dde2e9; --head: #eef1f5;
  --good: #14703b; --good-paper: #dff3e6; --fair: #7a5200; --fair-paper: #fcefcf; --bad: #a3201d; --bad-paper: #fbe2e0; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161c; --card: #1a2028; --ink: #e4e8ee; --soft: #9aa6b5; --line: #2d3642; --head: #222a34;
    --good: #7fdba3; --good-paper: #173a27; --fair: #f0c56a; --fair-paper: #40320f; --bad: #ff9d97; --bad-paper: #4a1d1c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { margin: 0; font-size: 1.6rem; } h2 { margin: 2.25rem 0 .75rem; font-size: 1.15rem; } h3 { margin: 1.5rem 0 .5rem; font-size: .95rem; }
p { margin: .35rem 0; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .6rem; background: var(--card); }
table { width: 100%; min-width: 58rem; border-collapse: collapse; }
th, td { padding: .6rem .8rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { background: var(--head); color: var(--soft); font-size: .78rem; font-weight: 600; letter-spacing: .04em; text-transform: uppercase;
  white-space: nowrap; overflow-wrap: normal; }
tr + tr > td, thead + tbody > tr:first-child > td { border-top: 1px solid var(--line); }
td > p { margin: .1rem 0; } td > p:first-child { margin-top: 0; } td.source { color: var(--soft); font-size: .85rem; }
.fixed { table-layout: fixed; }
summary .badge { margin-left: .5rem; }
.badge { display: inline-block; padding: .1rem .55rem; border-radius: 1rem; font-size: .82rem; font-weight: 600; white-space: nowrap; }
.verified { color: var(--good); background: var(--good-paper); } .expected { color: var(--good); background: var(--good-paper); }
.functional { color: var(--fair); background: var(--fair-paper); } .bad { color: var(--bad); background: var(--bad-paper); }
details { margin: .75rem 0; border: 1px solid var(--line); border-radius: .6rem; background: var(--card); }
summary { padding: .75rem 1rem; cursor: pointer; font-weight: 600; overflow-wrap: anywhere; } details > div { padding: 0 1rem 1rem; }
details .scroll { border-radius: .4rem; }
code, pre { font: .87em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { margin: 0; padding: .7rem .9rem; white-space: pre-wrap; border-radius: .4rem; background: var(--head); }
ul { margin: .35rem 0; padding-left: 1.2rem; }
.note { display: grid; grid-template-columns: 6.5rem 1fr; gap: .2rem .9rem; margin: 0; } .note dt { color: var(--soft); }
.note dd { margin: 0; min-width: 0; white-space: pre-line; overflow-wrap: anywhere; }
.note .warning, .note .existing { color: var(--fair); } .note .conflict, .note .found { color: var(--bad); }
.note .way { color: var(--good); }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def _safe(value: Any) -> str:
    return html.escape(printable("none" if value is None else value))


def _table(heads: Iterable[str], body: Iterable[Iterable[str]], widths: Iterable[str] = ()) -> str:
    """Cells are markup already."""
    columns = "".join(f'<col style="width: {width}">' for width in widths)
    head = "".join(f"<th>{_safe(name)}</th>" for name in heads)
    lines = "".join(f"<tr>{''.join(cells)}</tr>\n" for cells in body)
    fixed = ' class="fixed"' if columns else ""
    return f'<div class="scroll"><table{fixed}>{columns}<thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>\n'


def _cell(*paragraphs: Any) -> str:
    return f"<td>{''.join(f'<p>{_safe(text)}</p>' for text in paragraphs)}</td>"


def _badge(entry: Mapping[str, Any]) -> str:
    plan = entry["plan"]
    return (
        f'<span class="badge {_safe(plan["support"])}">{_safe(plan["support"])}</span>'
        if plan
        else f'<span class="badge bad">{_safe(entry["state"])}</span>'
    )


def _row(entry: Mapping[str, Any]) -> Iterable[str]:
    plan, hosts = entry["plan"], entry["hosts"]
    count = [counted(len(hosts), "host", "hosts")] if len(hosts) > 1 else []
    cards = [card(kind) for kind in entry["gpus"]] or ["-"]
    first, *rest = stack(plan) if plan else ["-"]
    warnings = counted(len(plan["warnings"]), "warning", "warnings") if plan and plan["warnings"] else "-"
    yield f"<td><strong>{_safe(names(hosts))}</strong>{''.join(f'<p class=soft>{_safe(text)}</p>' for text in count)}</td>"
    yield _cell(*cards)
    yield _cell(entry["driver"] or "-")
    yield f"<td><strong>{_safe(first)}</strong>{''.join(f'<p class=soft>{_safe(text)}</p>' for text in rest)}</td>"
    yield f"<td>{_badge(entry)}</td>"
    yield _cell(warnings)


def _notes(entry: Mapping[str, Any]) -> str:
    lines = "".join(
        f'<dt>{_safe(kind)}</dt><dd class="{"way" if "way" in kind else kind.partition(" ")[0]}">{_safe(text)}</dd>\n'
        for kind, text in notes(entry)
    )
    return f'<dl class="note">{lines}</dl>\n'


def _reasons(title: str, heads: tuple[str, str], found: list[tuple[Any, Any, Any, Any]]) -> str:
    if not found:
        return ""
    body = [
        (
            f"<td>{_safe(one)}</td>",
            f"<td><strong>{_safe(other)}</strong></td>",
            f"<td>{_safe(why)}</td>",
            f'<td class="source">{_safe(source)}</td>',
        )
        for one, other, why, source in found
    ]
    return f"<h3>{_safe(title)}</h3>\n" + _table((*heads, "Because", "Source"), body, ("16%", "22%", "42%", "20%"))


def _launch(plan: Mapping[str, Any]) -> str:
    launch = plan["launch"]
    text = "\n".join([*(f"{name}={value}" for name, value in launch["env"].items()), " ".join(launch["args"])])
    return f"<h3>Start of each server</h3>\n<pre>{_safe(text)}</pre>\n"


def _hosts(entry: Mapping[str, Any]) -> str:
    def cards(own: Mapping[str, Any]) -> str:
        return f"<td>{'<br>'.join(f'<code>{_safe(name)}</code>' for name in own.get('devices', [])) or _safe(own.get('message', '-'))}</td>"

    body = [
        (f"<td>{_safe(name)}</td>", f"<td><code>{_safe(own.get('launch_id', '-'))}</code></td>", cards(own))
        for name, own in entry["hosts"].items()
    ]
    title = counted(len(body), "host", "hosts")
    return f"<details><summary>{_safe(title)}</summary><div>{_table(('Host', 'Launch', 'GPUs of the servers'), body)}</div></details>\n"


def _class(entry: Mapping[str, Any], shown: bool) -> str:
    plan = entry["plan"]
    parts = [_notes(entry)]
    if plan:
        parts.append(f"<p class=soft>Stack <code>{_safe(plan['stack_id'])}</code></p>")
        decisions = [tuple(one[key] for key in ("subject", "choice", "because", "source")) for one in plan["decisions"]]
        rejected = [tuple(one[key] for key in ("subject", "option", "because", "source")) for one in plan["rejected"]]
        parts += [
            _launch(plan),
            _reasons("Decisions", ("Subject", "Choice"), decisions),
            _reasons("Not chosen", ("Subject", "Option"), rejected),
        ]
    if len(entry["hosts"]) > 1 or any(entry["hosts"].values()):
        parts.append(_hosts(entry))
    heading = f"<summary>{_safe(names(entry['hosts']))} {_badge(entry)}</summary>"
    return f"<details{' open' if shown else ''}>{heading}<div>\n{''.join(parts)}</div></details>\n"


def render(document: Mapping[str, Any]) -> str:
    """The page; the same document gives the same bytes."""
    classes = document["classes"]
    each = "".join(_class(entry, shown=not entry["plan"] or len(classes) == 1) for entry in classes)
    heads = ("Hosts", "GPUs", "Driver", "Stack", "Support", "Warnings")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Plan: {_safe(summary(document))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Plan</h1>\n<p>{_safe(summary(document))}.</p>\n"
        f'<p class="soft">Nothing was changed. Knowledge of {_safe(document["knowledge_as_of"])}.</p>\n'
        f"<h2>Classes of hosts</h2>\n{_table(heads, (_row(entry) for entry in classes), ('18%', '26%', '12%', '20%', '12%', '12%'))}"
        f"<h2>Each class</h2>\n{each}</main>\n</body>\n</html>\n"
    )
