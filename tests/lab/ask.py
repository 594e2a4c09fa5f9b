# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the lab's endpoint a question that was never asked before, and check the answer against the engine's function."""

from __future__ import annotations

import json
import secrets
import sys
import urllib.request
from pathlib import Path

from sim.engine.lab_answer import answer

ENDPOINT = "http://10.99.0.200:8000"
KEY = Path("/var/lib/bwlab/gateway.key")


def main() -> int:
    prompt = f"Nobody asked this before: {secrets.token_hex(8)}"
    body = {"model": "Qwen3.6-27B", "messages": [{"role": "user", "content": prompt}]}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY.read_text(encoding='ascii').strip()}"}
    request = urllib.request.Request(f"{ENDPOINT}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            text = json.load(response)["choices"][0]["message"]["content"]
    except (OSError, ValueError, KeyError, IndexError) as error:
        print(f"ask: no completion from {ENDPOINT}: {error!r}; see 'tests/lab/lab status'", file=sys.stderr)
        return 1
    print(f"prompt:     {prompt}\ncompletion: {text}")
    if text != answer(prompt):
        print(f"ask: wanted {answer(prompt)!r}, the engine's function of the prompt", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
