# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write what was measured, chosen and installed beside the inventory, so that a dead node can be rebuilt identically."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.inference.plugins.module_utils._durable import write_atomic

# What differs from one moment to the next says nothing about how to rebuild a node.
VOLATILE = frozenset({"memory_used_mib", "processes", "holder_unknown", "ecc_errors", "pcie_width", "recorded_at"})


def stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: kinds(entry) if key == "problems" else stable(entry) for key, entry in value.items() if key not in VOLATILE}
    return [stable(entry) for entry in value] if isinstance(value, list) else value


def kinds(problems: Any) -> Any:
    """What is wrong, without its sentences: they name counts that grow, such as corrected memory errors."""
    listed = isinstance(problems, list) and all(isinstance(entry, dict) for entry in problems)
    return sorted({(str(entry.get("code")), str(entry.get("severity"))) for entry in problems}) if listed else stable(problems)


def plain(value: Any) -> Any:
    """Return value made of plain types only, as YAML's safe dumper wants it."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)


def render(value: Any) -> str:
    """Return a file's text: a string as it is, anything else as YAML with sorted keys."""
    if isinstance(value, str):
        return value
    return yaml.safe_dump(plain(value), sort_keys=True, allow_unicode=True, width=150)


def unchanged(path: Path, value: Any) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    if isinstance(value, str):
        return text == value
    try:
        return bool(stable(yaml.safe_load(text)) == stable(value))
    except yaml.YAMLError:
        return False


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(str(path), text.encode())


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(
            argument_spec={"path": {"type": "path", "required": True}, "files": {"type": "dict", "required": True}}
        )
        folder = Path(arguments["path"])
        if not folder.is_absolute():
            raise AnsibleActionFail(
                f"found: record folder {str(folder)!r}; wanted: an absolute path on the controller; "
                "do: use an inventory that lies in a folder, or set inference_record_dir"
            )
        try:
            return self._record(folder, arguments["files"])
        except (OSError, UnicodeDecodeError) as error:
            raise AnsibleActionFail(
                f"found: the record folder {folder} cannot be used ({error}); wanted: files that can be read and written; "
                "do: look at its owner and the free space, or set inference_record_dir"
            ) from error

    def _record(self, folder: Path, files: dict[str, Any]) -> dict[str, Any]:
        changed: list[str] = []
        diffs = []
        for name, value in sorted(files.items()):
            path = folder / name
            if unchanged(path, plain(value)):
                continue
            if isinstance(value, dict):
                value = {**value, "recorded_at": datetime.now(timezone.utc).isoformat(timespec="seconds")}
            text = render(value)
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            diffs.append({"before_header": str(path), "after_header": str(path), "before": before, "after": text})
            changed.append(str(path))
            if not self._task.check_mode:
                write(path, text)
        return {"changed": bool(changed), "written": changed, "path": str(folder), "diff": diffs}
