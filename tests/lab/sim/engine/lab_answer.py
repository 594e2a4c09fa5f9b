# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's engine answers to a prompt: ``python -m sglang.lab_answer PROMPT``.

    echo-<first 12 hex digits of sha256(prompt)> and seven words chosen by the digest's next bytes

Nothing random, nothing of the worker or the time: whoever knows the prompt knows the answer. A token of this engine
is a word, so the answer has eight tokens; a smaller ``max_tokens`` cuts it, and ``ignore_eos`` repeats it until
``max_tokens`` is reached. Tests import this file to know what to expect.
"""

from __future__ import annotations

import hashlib
import itertools
import sys

_WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron")


def answer_tokens(prompt: str, max_tokens: int | None = None, ignore_eos: bool = False) -> list[str]:
    digest = hashlib.sha256(prompt.encode()).digest()
    tokens = [f"echo-{digest.hex()[:12]}", *(_WORDS[byte % len(_WORDS)] for byte in digest[6:13])]
    if max_tokens is None:
        return tokens
    if ignore_eos:
        return list(itertools.islice(itertools.cycle(tokens), max_tokens))
    return tokens[:max_tokens]


def answer(prompt: str, max_tokens: int | None = None) -> str:
    return " ".join(answer_tokens(prompt, max_tokens))


def last_user_message(messages: object) -> str:
    """The text that a chat is answered by: the content of the last message of the user, text parts joined."""
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages: wanted a list with at least one message")
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return content_text(message.get("content"))
    raise ValueError("messages: wanted at least one of the user")


def content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "\n".join(str(part) for part in parts)
    return ""


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m sglang.lab_answer PROMPT", file=sys.stderr)
        return 2
    print(answer(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
