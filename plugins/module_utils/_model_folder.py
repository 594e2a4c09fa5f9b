# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model folder holds, read from the disk: config.json, the safetensors index and headers. Tensors are never read."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._safetensors import (
    LFS_MAGIC,
    Header,
    loads_strict,
    open_regular,
    read_header,
)

INDEX = "model.safetensors.index.json"
QUANTIZATION = "hf_quant_config.json"
# What a server reads if it is there.
SIDE_FILES = frozenset(("generation_config.json", QUANTIZATION))
MAX_JSON = 64 << 20
MAX_FILES = 10_000


@dataclass
class Folder:
    """Everything read from the disk."""

    path: str
    names: list[str] = field(default_factory=list)
    # Those that no other user may read, and how many entries are beyond MAX_FILES.
    private: list[str] = field(default_factory=list)
    unread: int = 0
    config: dict[str, Any] | None = None
    config_fault: str | None = None
    modelopt: dict[str, Any] | None = None
    side_faults: dict[str, str] = field(default_factory=dict)
    index: dict[str, str] | None = None
    index_fault: str | None = None
    headers: dict[str, Header] = field(default_factory=dict)


def read_folder(path: str) -> Folder:
    folder = Folder(path)
    names = sorted(os.listdir(path))
    folder.names, folder.unread = names[:MAX_FILES], max(0, len(names) - MAX_FILES)
    folder.config, folder.config_fault = _read_json(os.path.join(path, "config.json"))
    for name in sorted(SIDE_FILES.intersection(folder.names)):
        document, fault = _read_json(os.path.join(path, name))
        if fault:
            folder.side_faults[name] = fault
        if name == QUANTIZATION:
            folder.modelopt = document
    if INDEX in folder.names:
        document, folder.index_fault = _read_json(os.path.join(path, INDEX))
        weights = (document or {}).get("weight_map")
        if isinstance(weights, dict) and all(isinstance(value, str) for value in weights.values()):
            # A hundred thousand names of a few files: each file's name once.
            for name in weights:
                weights[name] = sys.intern(weights[name])
            folder.index = weights
        elif folder.index_fault is None:
            folder.index_fault = "it has no weight_map of names to files"
    for name in folder.names:
        if name.endswith(".safetensors"):
            folder.headers[name] = read_header(os.path.join(path, name))
    read = ["", *(name for name in folder.names if not name.startswith("."))]
    folder.private = [name for name in read if _is_private(os.path.join(path, name))]
    return folder


def _is_private(path: str) -> bool:
    """Whether other users are kept out: of a file by its read bit, of a folder by its search bit as well."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed != needed


def _read_json(path: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        fd, found = open_regular(path)
        with open(fd, "rb") as handle:
            # read(n) sets n bytes aside, however short the file is
            text = handle.read(min(found.st_size, MAX_JSON) + 1)
    except FileNotFoundError:
        return None, "it does not exist"
    except OSError as denied:
        return None, f"it cannot be read: {denied.strerror}"
    if len(text) > MAX_JSON:
        return None, f"it is larger than {MAX_JSON} bytes"
    if text.startswith(LFS_MAGIC):
        return None, "it is a Git LFS pointer, not the file itself"
    try:
        # An index may be tens of megabytes: the bytes are let go before it is parsed.
        decoded = text.decode("utf-8")
        del text
        document = loads_strict(decoded)
    except ValueError as broken:
        return None, f"it is not JSON: {broken}"
    return (document, None) if isinstance(document, dict) else (None, "it is not a JSON object")
