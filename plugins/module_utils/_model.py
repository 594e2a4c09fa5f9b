# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What lies in a model folder: config.json, the safetensors index and the safetensors headers. Tensors are never read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _model_config as settings
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning
from ansible_collections.blackwell.inference.plugins.module_utils._safetensors import (
    LFS_MAGIC,
    Header,
    Tensor,
    loads_strict,
    read_header,
)

INDEX = "model.safetensors.index.json"
MAX_JSON = 64 << 20
MAX_FILES = 10_000
# Tensors that describe a quantized weight and are no parameters of their own.
AUXILIARY = re.compile(
    r"(_scale|_scale_inv|_scale_2|_scales|scales|qzeros|g_idx|_zero_point|_shape|_global_scale|zeros|_scb|_absmax)$"
)
PACKED_32 = re.compile(r"(qweight|weight_packed|_packed)$")
FETCH = "fetch the file again (it must be the whole file, with its checksum compared)"


@dataclass
class Folder:
    """Everything read from the disk."""

    path: str
    names: list[str] = field(default_factory=list)
    config: dict[str, Any] | None = None
    config_fault: str | None = None
    modelopt: dict[str, Any] | None = None
    index: dict[str, str] | None = None
    index_fault: str | None = None
    headers: dict[str, Header] = field(default_factory=dict)


def read_folder(path: str) -> Folder:
    folder = Folder(path)
    folder.names = sorted(os.listdir(path))[:MAX_FILES]
    folder.config, folder.config_fault = _read_json(os.path.join(path, "config.json"))
    folder.modelopt, _fault = _read_json(os.path.join(path, "hf_quant_config.json"))
    if INDEX in folder.names:
        document, folder.index_fault = _read_json(os.path.join(path, INDEX))
        weights = (document or {}).get("weight_map")
        if isinstance(weights, dict) and all(isinstance(value, str) for value in weights.values()):
            folder.index = weights
        elif folder.index_fault is None:
            folder.index_fault = "it has no weight_map of names to files"
    for name in folder.names:
        if name.endswith(".safetensors"):
            folder.headers[name] = read_header(os.path.join(path, name))
    return folder


def _read_json(path: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        with open(path, "rb") as handle:
            text = handle.read(MAX_JSON + 1)
    except FileNotFoundError:
        return None, "it does not exist"
    except OSError as denied:
        return None, f"it cannot be read: {denied.strerror}"
    if len(text) > MAX_JSON:
        return None, f"it is larger than {MAX_JSON} bytes"
    if text.startswith(LFS_MAGIC):
        return None, "it is a Git LFS pointer, not the file itself"
    try:
        document = loads_strict(text)
    except ValueError as broken:
        return None, f"it is not JSON: {broken}"
    return (document, None) if isinstance(document, dict) else (None, "it is not a JSON object")


def describe(folder: Folder) -> dict[str, Any]:
    """`ansible_facts.model` from what was read."""
    problems: list[Problem] = []
    config = folder.config or {}
    if folder.config is None:
        problems.append(
            error("config_unreadable", f"{folder.path}/config.json: {folder.config_fault}", "a model's config.json",
                  "name the folder that holds the model, or fetch the file again")
        )  # fmt: skip
    text = settings.text_config(config)
    layers = settings.number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    tensors, missing, truncated = _weights(folder, problems)
    mtp = _mtp(folder, config, layers, tensors)
    quantization = settings.quantization(config, folder.modelopt)
    model = {
        "path": folder.path,
        "architectures": [str(name) for name in config.get("architectures") or []]
        if isinstance(config.get("architectures"), list)
        else [],
        "model_type": config.get("model_type") if isinstance(config.get("model_type"), str) else None,
        "dtype": settings.dtype(config),
        "quantization": quantization,
        "parameters": sum(_parameters(name, tensor, quantization) for name, tensor in tensors.items()) or None,
        "weight_bytes": sum(tensor.bytes for tensor in tensors.values()) or None,
        "layers": layers,
        "attention": settings.layer_kinds(config) if folder.config else None,
        "kv_bytes_per_token": settings.kv_bytes_per_token(config),
        "state_bytes_per_request": settings.state_bytes_per_request(config) if folder.config else None,
        "vision": settings.has_vision(config) if folder.config else None,
        "max_context": settings.max_context(config),
        "mtp": mtp,
        "complete": not missing and not any(problem["severity"] == "error" for problem in problems),
        "missing": missing,
        "truncated": truncated,
        "problems": problems,
    }
    if folder.config is not None:
        _unknown(model, problems)
    return model


def _unknown(model: dict[str, Any], problems: list[Problem]) -> None:
    for key in ("architectures", "dtype", "layers", "attention", "kv_bytes_per_token", "state_bytes_per_request",
                "max_context"):  # fmt: skip
        if model[key] is None or model[key] == []:
            problems.append(
                warning("config_incomplete", f"config.json does not tell {key}", f"a config.json that defines {key}",
                        f"state {key} yourself where a plan needs it")
            )  # fmt: skip


def _weights(folder: Folder, problems: list[Problem]) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The tensors that a server would load, the files that are missing and those that are cut short."""
    wanted = folder.index
    if INDEX in folder.names and wanted is None:
        problems.append(error("index_unreadable", f"{INDEX}: {folder.index_fault}", "a readable index", FETCH))
    if wanted is None:
        wanted = {name: file for file, header in folder.headers.items() for name in header.tensors}
        _duplicates(folder, problems)
    files = sorted(set(wanted.values()))
    missing = [name for name in files if name not in folder.headers]
    for name in missing:
        problems.append(error("file_missing", f"the index names {name}, which is not there", "every indexed file", FETCH))
    if not folder.headers:
        problems.append(_no_weights(folder))
    tensors: dict[str, Tensor] = {}
    absent: dict[str, list[str]] = {}
    for name, file in wanted.items():
        header = folder.headers.get(file)
        if header is None:
            continue
        if name in header.tensors:
            tensors[name] = header.tensors[name]
        elif not header.truncated:
            absent.setdefault(file, []).append(name)
    for file, names in sorted(absent.items()):
        problems.append(
            error("tensor_missing", f"{file} lacks {len(names)} tensors that the index puts there, first {names[0]:.200}",
                  "a file and an index of one revision", FETCH)
        )  # fmt: skip
    truncated = [file for file, header in folder.headers.items() if header.truncated]
    for file, header in folder.headers.items():
        _faults(file, header, file in files or folder.index is None, problems)
    return tensors, missing, truncated


def _faults(file: str, header: Header, needed: bool, problems: list[Problem]) -> None:
    seen: dict[str, list[str]] = {}
    for code, sentence in header.faults:
        seen.setdefault(code, []).append(sentence)
    for code, sentences in seen.items():
        more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
        # A gap wastes bytes, and a damaged file that the index does not name is never loaded.
        make = error if needed and code != "gap" else warning
        problems.append(make(f"safetensors_{code}", f"{file}: {sentences[0]}{more}", "a whole safetensors file", FETCH))


def _duplicates(folder: Folder, problems: list[Problem]) -> None:
    owner: dict[str, str] = {}
    for file, header in folder.headers.items():
        for name in header.tensors:
            if name in owner:
                problems.append(
                    error("duplicate_tensor", f"{name:.200} lies in {owner[name]} and in {file}", "one file a tensor",
                          f"remove the file that does not belong there, or fetch {INDEX}")
                )  # fmt: skip
                return
            owner[name] = file


def _no_weights(folder: Folder) -> Problem:
    other = [name for name in folder.names if name.endswith((".gguf", ".bin", ".pt", ".pth"))]
    if other:
        kind = "GGUF" if any(name.endswith(".gguf") for name in other) else "PyTorch"
        return error("unsupported_format", f"only {kind} weights, for example {other[0]}", "weights as safetensors",
                     "fetch the safetensors edition of this model")  # fmt: skip
    return error("no_weights", f"no weight file in {folder.path}", "weights as safetensors", "fetch the whole model")


def _parameters(name: str, tensor: Tensor, quantization: str | None) -> int:
    """Weights that one stored tensor stands for: packed ones hold several an element, scales hold none."""
    elements: int = tensor.elements
    if quantization is None:
        return elements
    if AUXILIARY.search(name):
        return 0
    if tensor.dtype in ("I32", "U32") and PACKED_32.search(name):
        bits = 8 if quantization == "int8" else 4
        return elements * 32 // bits
    if tensor.dtype == "U8" and (quantization in ("nvfp4", "mxfp4") or "fp4" in quantization):
        return elements * 2
    return elements


def _mtp(
    folder: Folder, config: dict[str, Any], layers: int | None, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    configured = settings.mtp_layers(config)
    named = folder.index if folder.index is not None else dict.fromkeys(tensors, "")
    indexed = [name for name in named if settings.is_mtp_tensor(name, layers)]
    files = sorted(
        file
        for file, header in folder.headers.items()
        if "mtp" in file.lower() or any(settings.is_mtp_tensor(name, layers) for name in header.tensors)
    )
    loaded = [name for name in indexed if name in tensors]
    usable = bool(configured and indexed and len(loaded) == len(indexed))
    if usable:
        reason = f"the config announces {configured} layers and the index names their {len(indexed)} tensors"
    elif not configured:
        reason = "the config announces no layers for multi-token prediction"
    elif not indexed and files:
        reason = f"{', '.join(files)} is there, but the index names no MTP tensor, so that servers never load it"
    elif not indexed:
        reason = "the config announces layers for multi-token prediction, but no MTP tensor is there"
    else:
        reason = f"{len(indexed) - len(loaded)} of {len(indexed)} MTP tensors that the index names are not in its files"
    return {
        "configured": bool(configured),
        "indexed": bool(indexed),
        "files": files,
        "usable": usable,
        "reason": reason,
    }
