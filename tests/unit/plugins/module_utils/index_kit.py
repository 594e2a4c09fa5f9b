# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small package index for tests."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _fetch
from ansible_collections.blackwell.inference.plugins.module_utils._lock import normalized
from ansible_collections.blackwell.inference.plugins.module_utils._wheelhouse import Wanted


class Index:
    """A package index on loopback that can be told to misbehave."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.statuses: list[int] = []
        self.cut_at: list[int] = []
        self.ranges = True
        self.as_html = False
        self.lying_hash: str | None = None
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, *_arguments: Any) -> None:
                """The test's output stays readable."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.requests.append((request.path, request.headers.get("Range")))
        if self.statuses:
            status = self.statuses.pop(0)
            if status != 200:
                request.send_error(status)
                return
        if request.path.startswith("/simple/"):
            self.page(request, request.path.split("/")[2])
        else:
            self.file(request, self.files[request.path.rpartition("/")[2]])

    def page(self, request: http.server.BaseHTTPRequestHandler, project: str) -> None:
        files = [
            {
                "filename": name,
                "url": f"../../files/{name}",
                "hashes": {"sha256": self.lying_hash or hashlib.sha256(data).hexdigest()},
            }
            for name, data in self.files.items()
            if normalized(name.split("-")[0]) == project
        ]
        body = b"<html></html>" if self.as_html else json.dumps({"files": files}).encode()
        self.send(request, 200, body, len(body), {"Content-Type": _fetch.JSON_TYPE})

    def file(self, request: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        header = request.headers.get("Range")
        start = int(header[len("bytes=") : -1]) if header and self.ranges else 0
        body = data[start:]
        sent = body[: self.cut_at.pop(0)] if self.cut_at else body
        self.send(request, 206 if start else 200, sent, len(body), {})

    def send(self, request: http.server.BaseHTTPRequestHandler, status: int, body: bytes, length: int, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        # A client that has seen enough hangs up.
        with contextlib.suppress(ConnectionError):
            request.wfile.write(body)
        request.close_connection = True

    def wanted(self, name: str, project: str = "alpha") -> Wanted:
        data = self.files[name]
        return Wanted(name, hashlib.sha256(data).hexdigest(), len(data), project=project)
