# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sim.engine.http_server import Engine, EngineServer
from sim.engine.lab_answer import answer
from sim.engine.metrics import Metrics

GPU = "GPU-17b406ae-086e-99c5-9214-3335920048f6"


def make_engine(**changes: Any) -> Engine:
    values: dict[str, Any] = {
        "model_name": "qwen",
        "fingerprint": GPU,
        "context_length": 100,
        "max_running_requests": 8,
        "api_key": None,
        "metrics_enabled": True,
        "model_info": {"model_path": "/m"},
        "server_info": {"version": "0"},
        "state": "ready",
    }
    return Engine(**{**values, **changes})


class Client:
    def __init__(self, server: EngineServer) -> None:
        self.server = server

    def request(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.server.server_address[1], timeout=20)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def chat(self, text: str, **more: Any) -> tuple[int, str]:
        body = {"model": "qwen", "messages": [{"role": "user", "content": text}], **more}
        return self.request("POST", "/v1/chat/completions", body)


@pytest.fixture
def client() -> Iterator[Client]:
    server = EngineServer(("127.0.0.1", 0), make_engine())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Client(server)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_chat(client: Client) -> None:
    status, text = client.chat("hello there")
    body = json.loads(text)
    assert status == 200
    assert body["choices"][0]["message"]["content"] == answer("hello there")
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 2, "completion_tokens": 8, "total_tokens": 10, "prompt_tokens_details": None
    }  # fmt: skip
    assert body["system_fingerprint"] == GPU


def test_a_stream_adds_up_to_the_same_text(client: Client) -> None:
    status, text = client.chat("hello", stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert (status, events[-1]) == (200, "[DONE]")
    chunks = [json.loads(event) for event in events[:-1]]
    pieces = [c["choices"][0]["delta"]["content"] or "" for c in chunks if c["choices"]]
    assert "".join(pieces) == answer("hello")
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 8


def test_max_tokens_cuts_and_says_so(client: Client) -> None:
    choice = json.loads(client.chat("hello", max_tokens=3)[1])["choices"][0]
    assert choice["message"]["content"] == answer("hello", 3)
    assert choice["finish_reason"] == "length"


def test_completions_and_generate(client: Client) -> None:
    _, text = client.request("POST", "/v1/completions", {"prompt": "hello"})
    assert json.loads(text)["choices"][0]["text"] == answer("hello")
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 2}, "stream": True}
    _, text = client.request("POST", "/generate", body)
    last = json.loads(text.split("\n\n")[-3].removeprefix("data: "))
    assert (last["text"], last["meta_info"]["finish_reason"]) == (answer("hello", 2), {"type": "length"})


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b"[" * 5000, {"messages": []}, {"messages": [{"role": "user"}], "max_tokens": 0},
     {"messages": [{"role": "user", "content": "x"}], "max_tokens": "many"},
     {"messages": [{"role": "user", "content": "x " * 200}]}],
)  # fmt: skip
def test_bad_requests_are_400_and_counted_nowhere(client: Client, body: Any) -> None:
    status, text = client.request("POST", "/v1/chat/completions", body)
    assert status == 400
    assert json.loads(text)["type"] == "BadRequestError"
    assert not client.server.engine.busy


def test_a_body_without_length_is_refused(client: Client) -> None:
    connection = HTTPConnection("127.0.0.1", client.server.server_address[1], timeout=10)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


@pytest.mark.parametrize(("state", "health", "chat"), [("starting", 503, 503), ("ready", 200, 200), ("draining", 503, 200)])
def test_states(client: Client, state: str, health: int, chat: int) -> None:
    client.server.engine.state = state
    assert client.request("GET", "/health")[0] == health
    assert client.request("GET", "/health_generate")[0] == health
    assert client.chat("hello")[0] == chat


def test_the_key_guards_all_but_health_and_metrics(client: Client) -> None:
    client.server.engine.api_key = "k"
    assert client.request("GET", "/v1/models")[0] == 401
    assert client.chat("x")[0] == 401
    assert client.request("GET", "/v1/models", key="k")[0] == 200
    assert client.request("GET", "/health")[0] == 200
    assert client.request("GET", "/metrics")[0] == 200


def test_information(client: Client) -> None:
    assert json.loads(client.request("GET", "/v1/models")[1])["data"][0]["id"] == "qwen"
    assert json.loads(client.request("GET", "/get_model_info")[1]) == {"model_path": "/m"}
    assert json.loads(client.request("GET", "/server_info")[1]) == {"version": "0"}
    assert client.request("GET", "/nothing")[0] == 404
    assert client.request("POST", "/nothing", {})[0] == 404


def test_metrics_count(client: Client) -> None:
    client.chat("one two three")
    text = client.request("GET", "/metrics")[1]
    assert 'sglang:prompt_tokens_total{model_name="qwen"} 3.0' in text
    assert 'sglang:generation_tokens_total{model_name="qwen"} 8.0' in text
    assert 'sglang:e2e_request_latency_seconds_count{model_name="qwen"} 1.0' in text
    assert 'sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="qwen"} 1.0' in text
    assert 'sglang:num_running_reqs{engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="0"} 0.0' in text
    client.server.engine.metrics_enabled = False
    assert client.request("GET", "/metrics")[0] == 404


def test_more_requests_than_slots_wait(client: Client) -> None:
    long = {"max_tokens": 200, "ignore_eos": True}
    threads = [threading.Thread(target=client.chat, args=("x",), kwargs=long) for _ in range(12)]
    for thread in threads:
        thread.start()
    metrics = client.server.engine.metrics
    limit = time.monotonic() + 10
    while (metrics.running, metrics.waiting) != (8, 4) and time.monotonic() < limit:
        time.sleep(0.01)
    assert (metrics.running, metrics.waiting) == (8, 4)
    for thread in threads:
        thread.join()
    assert (metrics.running, metrics.waiting) == (0, 0)


def test_a_client_that_leaves_frees_its_slot(client: Client) -> None:
    connection = HTTPConnection("127.0.0.1", client.server.server_address[1], timeout=10)
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 4000, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
    connection.getresponse().read(100)
    connection.close()
    limit = time.monotonic() + 5
    while client.server.engine.busy and time.monotonic() < limit:
        time.sleep(0.01)
    assert not client.server.engine.busy


def test_a_model_name_cannot_break_the_metrics() -> None:
    assert r'model_name="a\"b\\c"' in Metrics('a"b\\c', 1).render()


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The entry point, with stand-ins for the packages that are only installed in a stack."""
    for name in ("flashinfer", "sgl_kernel", "torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    from sim.engine import launch_server

    return launch_server


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no config.json"),
        ("{", "Can't load the configuration"),
        ("[]", "are not supported for now"),
        ('{"architectures": ["NoSuchModel"]}', r"\['NoSuchModel'\] are not supported"),
    ],
)
def test_models_that_cannot_be_served(launch: ModuleType, tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(launch.StartError, match=message):
        launch.read_model(tmp_path)


def test_draining_waits_for_what_runs(launch: ModuleType, client: Client) -> None:
    answers: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: answers.append(client.chat("x", max_tokens=200, ignore_eos=True)), daemon=True)
    thread.start()
    limit = time.monotonic() + 5
    while not client.server.engine.busy and time.monotonic() < limit:
        time.sleep(0.005)
    launch.drain(client.server)
    thread.join(5)
    assert [status for status, _ in answers] == [200]
    assert client.server.engine.state == "draining"
