# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request's JSON to what is answered: no network in here."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .lab_answer import answer_tokens, content_text, last_user_message

# A completion of the usual eight tokens takes about this long.
TOKEN_SECONDS = 0.0025


class RequestError(ValueError):
    """The client's fault; answered with 400."""


@dataclass(frozen=True)
class Job:
    """One request, understood."""

    kind: str  # chat, text, generate
    tokens: list[str]
    prompt_tokens: int
    limited: bool
    stream: bool
    stream_usage: bool

    @property
    def finish_reason(self) -> str:
        return "length" if self.limited else "stop"


def _count_words(text: str) -> int:
    return max(1, len(text.split()))


def _whole_number(body: dict[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{name}: found {value!r}, wanted a whole number of at least 1")
    return value


def parse(kind: str, body: Any, context_length: int) -> Job:
    """Raises RequestError with a text for the client."""
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    sampling = body
    try:
        if kind == "chat":
            messages = body.get("messages")
            prompt = last_user_message(messages)
            count = sum(_count_words(content_text(m.get("content"))) for m in messages or [] if isinstance(m, dict))
        else:
            name = "text" if kind == "generate" else "prompt"
            value = body.get(name)
            first = value[0] if isinstance(value, list) and value else value
            if not isinstance(first, str):
                raise RequestError(f"{name}: wanted a string")
            prompt, count = first, _count_words(first)
    except ValueError as error:
        raise RequestError(str(error)) from error
    if kind == "generate":
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise RequestError("sampling_params: wanted an object")
    limit = _whole_number(sampling, "max_new_tokens" if kind == "generate" else "max_tokens", None)
    limit = _whole_number(sampling, "max_completion_tokens", limit)
    if count >= context_length:
        raise RequestError(f"The input ({count} tokens) is longer than the model's context length ({context_length} tokens).")
    ignore_eos = bool(sampling.get("ignore_eos"))
    tokens = answer_tokens(prompt, limit, ignore_eos)
    limited = limit is not None and (ignore_eos or limit < len(answer_tokens(prompt)))
    options = body.get("stream_options") or {}
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Job(kind, tokens, count, limited, bool(body.get("stream")), usage)


def timed_tokens(job: Job) -> Iterator[str]:
    """The pieces of the answer's text as a model would produce them, one after the other."""
    for number, token in enumerate(job.tokens):
        time.sleep(TOKEN_SECONDS)
        yield token if number == 0 else " " + token


class Answer:
    """The JSON forms of one job's answer. The fingerprint names the card that computed it."""

    def __init__(self, job: Job, model: str, fingerprint: str) -> None:
        self.job = job
        self.id = uuid.uuid4().hex
        self.started = time.monotonic()
        self._common = {
            "id": self.id,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def usage(self) -> dict[str, Any]:
        prompt, completion = self.job.prompt_tokens, len(self.job.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": None,
        }

    def _generate(self, text: str, finished: bool) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": self.id,
            "finish_reason": {"type": self.job.finish_reason} if finished else None,
            "prompt_tokens": self.job.prompt_tokens,
            "completion_tokens": _count_words(text),
            "cached_tokens": 0,
            "system_fingerprint": self._common["system_fingerprint"],
        }
        if finished:
            meta["e2e_latency"] = time.monotonic() - self.started
        return {"text": text, "meta_info": meta}

    def whole(self) -> dict[str, Any]:
        text = " ".join(self.job.tokens)
        if self.job.kind == "generate":
            return self._generate(text, True)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.job.finish_reason, "logprobs": None}
        if self.job.kind == "chat":
            choice["message"] = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        else:
            choice["text"] = text
        name = "chat.completion" if self.job.kind == "chat" else "text_completion"
        return {**self._common, "object": name, "choices": [choice], "usage": self.usage()}

    def _chunk(self, piece: str | None, finish_reason: str | None, first: bool = False) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
        if self.job.kind == "chat":
            choice["delta"] = {**({"role": "assistant"} if first else {}), "content": piece}
            return {**self._common, "object": "chat.completion.chunk", "choices": [choice]}
        choice["text"] = piece or ""
        return {**self._common, "object": "text_completion", "choices": [choice]}

    def events(self, pieces: Iterator[str]) -> Iterator[dict[str, Any]]:
        """What is streamed, without the closing [DONE]."""
        if self.job.kind == "generate":
            text = ""
            for piece in pieces:
                text += piece
                yield self._generate(text, len(text.split()) == len(self.job.tokens))
            return
        if self.job.kind == "chat":
            yield self._chunk("", None, first=True)
        for piece in pieces:
            yield self._chunk(piece, None)
        yield self._chunk(None, self.job.finish_reason)
        if self.job.stream_usage:
            name = "chat.completion.chunk" if self.job.kind == "chat" else "text_completion"
            yield {**self._common, "object": name, "choices": [], "usage": self.usage()}
