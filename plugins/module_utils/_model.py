# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`ansible_facts.model`, from what was read of a model folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _model_config as settings
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import INDEX, MAX_FILES, Folder
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning
from ansible_collections.blackwell.inference.plugins.module_utils._safetensors import Header, Tensor

# Tensors that describe a quantized weight and are no parameters of their own.
AUXILIARY = re.compile(
    r"(_scale|_scale_inv|_scale_2|_scales|scales|qzeros|g_idx|_zero_point|_shape|_global_scale|zeros|SCB|absmax|quant_map)$"
    r"|\.quant_state\."
)
# Of these, plain bytes are two weights of 4 bits each; other names say so themselves (nvfp4, mxfp4).
PACKED_8 = ("mixed_precision", "bitsandbytes")
PACKED_32 = re.compile(r"(qweight|weight_packed|_packed)$")
SHARD = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.safetensors")
# What a tokenizer lies in, by SGLang's and transformers' loaders; a model with code of its own brings tokenization_*.py.
TOKENIZER = re.compile(
    r"tokenizer\.(json|model|tok\.json)|tokenizer\.model\.v[0-9]+|tekken\.json|vocab\.(json|txt)|spiece\.model"
    r"|sentencepiece(\.bpe)?\.model|tokenization_\w+\.py|.+\.tiktoken|tiktoken\.model"
)
FETCH = "fetch the file again (it must be the whole file, with its checksum compared)"


def describe(folder: Folder) -> dict[str, Any]:
    """`ansible_facts.model` from what was read."""
    problems: list[Problem] = []
    config = folder.config or {}
    if folder.config is None:
        remedy = "name the folder that holds the model, or fetch the file again"
        if "snapshots" in folder.names:
            remedy = "this is the top of a download cache: name one of the folders in its snapshots"
        problems.append(error("config_unreadable", f"{folder.path}/config.json: {folder.config_fault}", "a model's config.json", remedy))
    text = settings.text_config(config)
    layers = settings.number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    tensors, missing, truncated = _weights(folder, problems)
    _files(folder, problems)
    mtp = _mtp(folder, config, layers, tensors)
    quantization = settings.quantization(config, folder.modelopt)
    bits = settings.packed_bits(config, folder.modelopt)
    model = {
        "path": folder.path,
        "architectures": settings.architectures(config),
        "model_type": config.get("model_type") if isinstance(config.get("model_type"), str) else None,
        "dtype": settings.dtype(config),
        "quantization": quantization,
        "parameters": sum(_parameters(name, tensor, quantization, bits) for name, tensor in tensors.items()) or None,
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
    cleaned: dict[str, Any] = _printable(model)
    return cleaned


def _printable(value: Any) -> Any:
    """Names on the disk and texts in JSON may hold halves of characters, which no file and no terminal takes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _printable(entry) for key, entry in value.items()}
    return [_printable(entry) for entry in value] if isinstance(value, list) else value


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
    # A damaged header names no tensors: without an index its file counts all the same.
    files = sorted(set(wanted.values())) if folder.index is not None else list(folder.headers)
    missing = _missing(folder, files, problems)
    if not folder.headers and not missing:
        problems.append(_no_weights(folder))
    elif not wanted and not missing and not any(header.damaged for header in folder.headers.values()):
        problems.append(error("no_weights", f"no tensor is named in {folder.path}", "an index or files that name some", FETCH))
    tensors: dict[str, Tensor] = {}
    absent: dict[str, list[str]] = {}
    for name, file in wanted.items():
        header = folder.headers.get(file)
        if header is None:
            continue
        if name in header.tensors:
            tensors[name] = header.tensors[name]
        elif not header.damaged:
            absent.setdefault(file, []).append(name)
    for file, names in sorted(absent.items()):
        problems.append(
            error("tensor_missing", f"{file} lacks {len(names)} tensors that the index puts there, first {names[0]:.200}",
                  "a file and an index of one revision", FETCH)
        )  # fmt: skip
    truncated = [file for file, header in folder.headers.items() if header.truncated]
    needed = set(files)
    for file, header in folder.headers.items():
        _faults(file, header, file in needed, problems)
    return tensors, missing, truncated


def _missing(folder: Folder, files: list[str], problems: list[Problem]) -> list[str]:
    """Files that a server needs and that are not there; none of those is opened, whatever its name."""
    there = set(folder.names)
    outside, other, gone = [], [], []
    for name in files:
        if "/" in name or name in ("", ".", ".."):
            outside.append(name)
        elif name not in there:
            gone.append(name)
        elif name not in folder.headers:
            other.append(name)
    if folder.index is None:
        gone = _missing_shards(list(folder.headers))
    if outside:
        problems.append(
            error("index_outside", f"the index names {_some(outside)}: not in this folder", "names of files beside the index", FETCH)
        )
    if other:
        problems.append(
            error("unsupported_format", f"the index names {_some(other)}: no safetensors", "weights as safetensors",
                  "fetch the safetensors edition of this model")
        )  # fmt: skip
    if gone:
        who = "the index names" if folder.index is not None else "the others' names count on"
        problems.append(error("file_missing", f"{who} {_some(gone)}: not there", "every file of the model", FETCH))
    return sorted(gone + [name for name in files if name in folder.headers and folder.headers[name].absent])


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name[:200]) for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _missing_shards(names: list[str]) -> list[str]:
    """What lacks in rows like model-00001-of-00003; no more than a folder may hold, whatever the names claim."""
    rows: dict[tuple[str, int], set[int]] = {}
    for name in names:
        found = SHARD.fullmatch(name)
        if found:
            rows.setdefault((found[1], int(found[3])), set()).add(int(found[2]))
    lacking = (
        f"{stem}-{number:05d}-of-{count:05d}.safetensors"
        for (stem, count), there in sorted(rows.items())
        for number in range(1, count + 1)
        if number not in there
    )
    return list(islice(lacking, MAX_FILES))


def _files(folder: Folder, problems: list[Problem]) -> None:
    """What is wrong with the folder's other files."""
    if folder.unread:
        problems.append(
            error("too_many_files", f"{folder.path} has {folder.unread} entries beyond {MAX_FILES}", "a model's folder",
                  "name the folder of one model")
        )  # fmt: skip
    for name, fault in folder.side_faults.items():
        problems.append(warning("side_file_unreadable", f"{name}: {fault}", "a readable file, or none", FETCH))
    if folder.config is not None and not any(TOKENIZER.fullmatch(name) for name in folder.names):
        problems.append(
            warning("tokenizer_missing", "no tokenizer.json, tokenizer.model or vocab.json: a server cannot start without one",
                    "the tokenizer's files beside the weights", "fetch the whole model, or name another tokenizer to the server")
        )  # fmt: skip
    if folder.private:
        first = folder.private[0] or folder.path
        problems.append(
            warning("not_readable_by_others", f"{len(folder.private)} entries are closed to other users, first {first:.200}",
                    "files that the service's user can read", f"chmod -R a+rX {folder.path}")
        )  # fmt: skip


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


def _parameters(name: str, tensor: Tensor, quantization: str | None, bits: int) -> int:
    """Weights that one stored tensor stands for: packed ones hold several an element, scales hold none."""
    elements: int = tensor.elements
    if quantization is None:
        return elements
    if AUXILIARY.search(name):
        return 0
    packed = PACKED_32.search(name)
    if tensor.dtype in ("I32", "U32") and packed:
        return elements * 32 // bits
    if tensor.dtype == "U8" and (packed or "fp4" in quantization or quantization in PACKED_8):
        return elements * 2
    return elements


def _mtp(folder: Folder, config: dict[str, Any], layers: int | None, tensors: dict[str, Tensor]) -> dict[str, Any]:
    configured = settings.mtp_layers(config)
    named = folder.index if folder.index is not None else tensors
    indexed = {name for name in named if settings.is_mtp_tensor(name, layers)}
    files = sorted(
        file
        for file, header in folder.headers.items()
        if "mtp" in file.lower() or any(name in indexed or _is_unnamed_mtp(name, named, layers) for name in header.tensors)
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


def _is_unnamed_mtp(name: str, named: Mapping[str, Any], layers: int | None) -> bool:
    return name not in named and settings.is_mtp_tensor(name, layers)
