# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.engine.lab_answer import answer, answer_tokens, content_text, last_user_message


def test_the_answer_is_known_from_the_prompt() -> None:
    digest = hashlib.sha256(b"hello nonce").hexdigest()
    assert answer("hello nonce") == "echo-5cbe8302a820 heron flint flint birch amber cedar heron"
    assert answer("hello nonce").startswith(f"echo-{digest[:12]} ")


@given(st.text(), st.integers(1, 40), st.booleans())
def test_tokens_obey_the_limit(prompt: str, limit: int, ignore_eos: bool) -> None:
    tokens = answer_tokens(prompt, limit, ignore_eos)
    assert len(tokens) == (limit if ignore_eos else min(limit, 8))
    assert tokens[:8] == answer_tokens(prompt)[:limit]


def test_the_last_message_of_the_user_counts() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "second"}]},
        {"role": "assistant", "content": "third"},
    ]
    assert last_user_message(messages) == "second"


@pytest.mark.parametrize("messages", [None, [], "x", {}, [{"role": "system", "content": "x"}], [1]])
def test_without_one_it_says_so(messages: object) -> None:
    with pytest.raises(ValueError, match="messages: wanted"):
        last_user_message(messages)


@pytest.mark.parametrize("content", [None, 3, [], [3], {"text": "x"}])
def test_content_of_another_form_has_no_text(content: object) -> None:
    assert content_text(content) == ""
