# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _completion
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

CHAT = {"choices": [{"message": {"content": "hello"}}], "usage": {"total_tokens": 3}}


class Handler(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, Any]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers[self.path]
        if self.headers["Authorization"] != "Bearer key":
            status, body = 401, {"error": "no key"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *dummy: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Handler.answers = {"/v1/models": (200, {"data": [{"id": "m"}]}), "/v1/chat/completions": (200, CHAT)}
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_takes_the_first_model(endpoint: str) -> None:
    result = _completion.complete(endpoint, "key", None, "say hello", 8, 5)
    assert (result["model"], result["text"], result["usage"]) == ("m", "hello", {"total_tokens": 3})


@pytest.mark.parametrize(
    ("path", "answer", "fragment"),
    [
        ("/v1/models", (200, {"data": []}), "found none; wanted one"),
        ("/v1/chat/completions", (503, {"error": "no worker"}), "HTTP 503"),
        ("/v1/chat/completions", (200, b"<html>"), "a JSON answer"),
        ("/v1/chat/completions", (200, [1]), "a JSON object"),
        ("/v1/chat/completions", (200, {"choices": []}), "a chat completion"),
    ],
)
def test_every_wrong_answer_is_explained(endpoint: str, path: str, answer: tuple[int, Any], fragment: str) -> None:
    Handler.answers[path] = answer
    with pytest.raises(Refusal) as caught:
        _completion.complete(endpoint, "key", None, "say hello", 8, 5)
    assert fragment in str(caught.value)


def test_a_wrong_key_names_the_variable(endpoint: str) -> None:
    with pytest.raises(Refusal) as caught:
        _completion.complete(endpoint, "wrong", "m", "say hello", 8, 5)
    assert "HTTP 401" in str(caught.value)
    assert "gateway_api_key" in str(caught.value)
    assert "wrong" not in str(caught.value).split("HTTP 401")[1]
