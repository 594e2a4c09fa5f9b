# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the small locks that are shipped with the roles, from the package index that uv's environment names.

    python tools/lock_environment.py            # all of them
    python tools/lock_environment.py gateway    # one of them

Run it in the virtual environment of the checkout (make setup), after changing a version below, and look at the difference.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _knowledge, _locker

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fixed:
    file: str
    requirements: tuple[str, ...]
    python: str = "3.13"
    platform: str = "x86_64-manylinux_2_28"
    anywhere: bool = False


LOCKS = {
    # The node's own Python is 3.11 (Proxmox VE 8) or 3.13 (9): the wheels are pure, so one lock serves both.
    "pve": Fixed("roles/pve_host/files/pve.lock", ("proxmoxer==2.3.0",), python="3.11", anywhere=True),
    "uv": Fixed("roles/pve_host/files/uv.lock", ("uv==0.13.9",), anywhere=True),
    "gateway": Fixed("roles/gateway/files/gateway.lock", ("smg==1.13.0",)),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in LOCKS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; wanted: {', '.join(LOCKS)}", file=sys.stderr)
        return 2
    as_of = f"{_knowledge.load().policy['as_of']}T00:00:00Z"
    environ = _compile.environment(os.environ, None)
    for name in names or list(LOCKS):
        fixed = LOCKS[name]
        lock = _locker.make_fixed(
            _compile.runner(600),
            _compile.find_uv(None),
            list(fixed.requirements),
            (fixed.python, fixed.platform),
            as_of,
            environ,
            fixed.anywhere,
        )
        file = ROOT / fixed.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lock.text(), encoding="utf-8")
        print(f"{fixed.file}: {len(lock.requirements)} distributions, lock id {lock.id}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
