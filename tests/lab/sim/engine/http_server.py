# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's HTTP endpoints, one thread a connection."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from .completion import Answer, Job, RequestError, parse, timed_tokens
from .metrics import Metrics

_GENERATING = {"/v1/chat/completions": "chat", "/v1/completions": "text", "/generate": "generate"}
# Who watches a server has no key.
_WITHOUT_KEY = ("/health", "/health_generate", "/metrics")
_LARGEST_BODY = 64 << 20


@dataclass
class Engine:
    """What the endpoints show and do. ``state`` goes from starting to ready to draining."""

    model_name: str
    fingerprint: str
    context_length: int
    max_running_requests: int
    api_key: str | None
    metrics_enabled: bool
    model_info: dict[str, Any]
    server_info: dict[str, Any]
    state: str = "starting"
    metrics: Metrics = field(init=False)
    _slots: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.model_name, self.max_running_requests)
        self._slots = threading.Semaphore(self.max_running_requests)

    def run(self, job: Job, answer: Answer) -> Iterator[str]:
        """The answer's pieces; counts the request as waiting, then running, then finished."""
        self.metrics.add(waiting=1)
        self._slots.acquire()
        self.metrics.add(waiting=-1, running=1)
        try:
            for number, piece in enumerate(timed_tokens(job)):
                if number == 0:
                    self.metrics.first_token(time.monotonic() - answer.started)
                yield piece
            self.metrics.finished(time.monotonic() - answer.started, job.prompt_tokens, len(job.tokens))
        finally:
            self.metrics.add(running=-1)
            self._slots.release()

    @property
    def busy(self) -> bool:
        return self.metrics.running > 0 or self.metrics.waiting > 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EngineServer

    def log_message(self, format: str, *args: Any) -> None:
        if not self.path.startswith(_WITHOUT_KEY):  # a probe every second would bury everything else
            super().log_message(format, *args)

    def do_GET(self) -> None:
        self._guarded(self._get)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def _guarded(self, serve: Any) -> None:
        try:
            serve(urlsplit(self.path).path)
        except ConnectionError:
            self.close_connection = True  # the client went away

    def _authorised(self, path: str) -> bool:
        key = self.server.engine.api_key
        if not key or path in _WITHOUT_KEY:
            return True
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {key}".encode())

    def _get(self, path: str) -> None:
        engine = self.server.engine
        if not self._authorised(path):
            self._json(401, {"error": "Unauthorized"})
        elif path in ("/health", "/health_generate"):
            self._send(200 if engine.state == "ready" else 503, "text/plain", b"")
        elif path == "/metrics" and engine.metrics_enabled:
            self._send(200, "text/plain; version=0.0.4; charset=utf-8", engine.metrics.render().encode())
        elif path == "/v1/models":
            card = {"id": engine.model_name, "object": "model", "created": int(time.time()), "owned_by": "sglang"}
            card |= {"root": engine.model_name, "parent": None, "max_model_len": engine.context_length}
            self._json(200, {"object": "list", "data": [card]})
        elif path in ("/model_info", "/get_model_info"):
            self._json(200, engine.model_info)
        elif path in ("/server_info", "/get_server_info"):
            self._json(200, engine.server_info)
        elif path == "/flush_cache":
            self._send(200, "text/plain", b"Cache flushed.\n")
        else:
            self._json(404, {"detail": "Not Found"})

    def _post(self, path: str) -> None:
        body = self._body()
        if body is None:
            return
        if not self._authorised(path):
            self._json(401, {"error": "Unauthorized"})
        elif path == "/flush_cache":
            self._send(200, "text/plain", b"Cache flushed.\n")
        elif path not in _GENERATING:
            self._json(404, {"detail": "Not Found"})
        elif self.server.engine.state == "starting":
            self._json(503, {"error": {"message": "The server is starting", "code": 503}})
        else:
            self._generate(_GENERATING[path], body)

    def _body(self) -> bytes | None:
        """The request's body; None when the request was answered because of it."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            self._error("a request needs a Content-Length of at most 64 MiB")
            return None
        return self.rfile.read(int(length))

    def _generate(self, kind: str, body: bytes) -> None:
        engine = self.server.engine
        try:
            content = json.loads(body)
            job = parse(kind, content, engine.context_length)
        except (RequestError, ValueError, RecursionError) as error:
            self._error(str(error))
            return
        # A wrong model name is answered like the right one, and echoed: so does the real engine.
        model = content.get("model")
        answer = Answer(job, model if isinstance(model, str) else engine.model_name, engine.fingerprint)
        pieces = engine.run(job, answer)
        if job.stream:
            self._stream(answer.events(pieces))
        else:
            for _ in pieces:
                pass
            self._json(200, answer.whole())

    def _stream(self, events: Iterator[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _error(self, message: str) -> None:
        self._json(400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400})

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class EngineServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], engine: Engine) -> None:
        self.engine = engine
        super().__init__(address, _Handler)
