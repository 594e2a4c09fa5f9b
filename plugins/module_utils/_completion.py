# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask an OpenAI-compatible endpoint for one completion. Private to the collection."""

from __future__ import annotations

import json
import time
import urllib.error
from typing import Any

from ansible.module_utils.urls import open_url
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


def request(url: str, api_key: str, body: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
    """Send one request and return its JSON object. Raises Refusal."""
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with open_url(url, method="POST" if data else "GET", data=data, headers=headers, timeout=timeout, use_proxy=False) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read(2000).decode(errors="replace")
        remedy = "Check gateway_api_key" if error.code == 401 else "See journalctl -u inference-gateway -u 'inference@*' in the container"
        raise Refusal(f"Request to {url}", f"HTTP {error.code}: {text}", "HTTP 200", remedy) from error
    except (OSError, ValueError) as error:
        raise Refusal(f"Request to {url}", str(error), "a JSON answer", "See journalctl -u inference-gateway in the container") from error
    if not isinstance(answer, dict):
        raise Refusal(f"Request to {url}", json.dumps(answer)[:200], "a JSON object", "Check the address")
    return answer


def complete(url: str, api_key: str, model: str | None, prompt: str, max_tokens: int, timeout: float) -> dict[str, Any]:
    """Return model, prompt, text and seconds of one chat completion; model None takes the first one served."""
    if model is None:
        served = request(f"{url}/v1/models", api_key, None, timeout).get("data") or []
        if not served:
            raise Refusal(f"Models at {url}", "none", "one", "See systemctl status 'inference@*' in the container")
        model = str(served[0]["id"])
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0}
    start = time.monotonic()
    answer = request(f"{url}/v1/chat/completions", api_key, body, timeout)
    seconds = round(time.monotonic() - start, 3)
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise Refusal(f"Completion from {url}", json.dumps(answer)[:500], "a chat completion", "Check the release that serves") from error
    return {"model": model, "prompt": prompt, "text": text, "seconds": seconds, "usage": answer.get("usage", {})}
