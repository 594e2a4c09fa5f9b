# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's package index: ``python3 -m sim.index BUILT --bind ADDRESS --port PORT``.

/simple/ and /simple/<project>/   the Simple Repository API, JSON (PEP 691, 700) or HTML by the Accept header
/wrong/simple/...                 the same, with the kernel wheels that hold no code for 12.0
/files/..., /wrong/<wheel>        the wheels; <wheel>.metadata their metadata (PEP 658); byte ranges work
/driver/                          the driver installer and its .sha256
"""

from __future__ import annotations

import argparse
import html
import json
import re
import signal
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .catalog import Catalog, Entry, normalise
from .wheels import read_metadata

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
_CHUNK = 1 << 20


def root_json(projects: list[str]) -> dict[str, Any]:
    return {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in projects]}


def project_json(project: str, entries: list[Entry]) -> dict[str, Any]:
    files = []
    for e in entries:
        item: dict[str, Any] = {
            "filename": e.filename,
            "url": f"/{e.path}",
            "hashes": {"sha256": e.sha256},
            "size": e.size,
            "upload-time": e.upload_time,
            "core-metadata": {"sha256": e.metadata_sha256},
            "yanked": False,
        }
        if e.requires_python:
            item["requires-python"] = e.requires_python
        files.append(item)
    versions = sorted({e.version for e in entries})
    return {"meta": {"api-version": "1.1"}, "name": project, "versions": versions, "files": files}


def page_html(page: dict[str, Any]) -> str:
    links = [f'<a href="{p["name"]}/">{p["name"]}</a>' for p in page.get("projects", [])]
    for item in page.get("files", []):
        python = html.escape(item.get("requires-python", ""), quote=True)
        attribute = f' data-requires-python="{python}"' if python else ""
        url = f"{item['url']}#sha256={item['hashes']['sha256']}"
        links.append(f'<a href="{url}"{attribute}>{item["filename"]}</a>')
    return "<!DOCTYPE html>\n<html><body>\n" + "<br>\n".join(links) + "\n</body></html>\n"


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a single range; None when there is none to honour. Raises ValueError outside the file."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", (header or "").strip())
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start >= size or end < start:
        raise ValueError(header)
    return start, end


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: IndexServer

    def log_message(self, format: str, *args: Any) -> None:
        if not self.server.quiet:
            super().log_message(format, *args)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        try:
            self._answer([part for part in path.split("/") if part])
        except ConnectionError:
            self.close_connection = True  # the client went away in the middle: its own affair

    def _answer(self, parts: list[str]) -> None:
        channel, rest = ("wrong", parts[1:]) if parts[:2] == ["wrong", "simple"] else ("simple", parts)
        if rest[:1] == ["simple"] and len(rest) <= 2:
            self._page(channel, rest[1:])
        elif len(parts) == 2 and parts[0] in ("files", "wrong", "driver") and parts[1] not in (".", ".."):
            self._file(self.server.built / parts[0] / parts[1])
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"no such page in the lab's index\n")

    def _page(self, channel: str, rest: list[str]) -> None:
        projects = self.server.catalog.projects(channel)
        if not rest:
            page = root_json(sorted(projects))
        elif normalise(rest[0]) in projects:
            name = normalise(rest[0])
            page = project_json(name, projects[name])
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"the lab's index has no project {rest[0]}\n".encode())
            return
        if "json" in self.headers.get("Accept", ""):
            self._send(HTTPStatus.OK, JSON_TYPE, json.dumps(page).encode())
        else:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page_html(page).encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, path: Path) -> None:
        if path.name.endswith(".whl.metadata"):
            wheel = path.with_name(path.name.removesuffix(".metadata"))
            if wheel.is_file():
                self._send(HTTPStatus.OK, "text/plain; charset=utf-8", read_metadata(wheel))
                return
        if not path.is_file():
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"the lab's index has no file {path.name}\n".encode())
            return
        size = path.stat().st_size
        try:
            part = parse_range(self.headers.get("Range"), size)
        except ValueError:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, end = part or (0, size - 1)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start + 1))
        if part:
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        self.end_headers()
        if self.command != "HEAD":
            self._copy(path, start, end - start + 1)

    def _copy(self, path: Path, start: int, count: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            while count > 0 and (block := file.read(min(_CHUNK, count))):
                self.wfile.write(block)
                count -= len(block)


class IndexServer(ThreadingHTTPServer):
    """Serves one built folder. Threads do not outlive it."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, built: Path, address: str, port: int, quiet: bool = False) -> None:
        self.built = built
        self.quiet = quiet
        self.catalog = Catalog.from_json(json.loads((built / "catalog.json").read_text(encoding="utf-8")))
        super().__init__((address, port), _Handler)


def serve(built: Path, address: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = IndexServer(built, address, port)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"serving {built} at http://{address}:{server.server_address[1]}/", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim.index", description="Serve the lab's package index.")
    parser.add_argument("built", type=Path, help="the folder that sim.build printed")
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    options = parser.parse_args()
    try:
        serve(options.built, options.bind, options.port)
    except OSError as error:
        print(f"sim.index: {options.built} at {options.bind}:{options.port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
