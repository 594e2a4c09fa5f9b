# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of quantized checkpoints. Their tensors are laid out here as each format stores them; the count is the original's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import read_folder
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.safetensors_kit import Shapes, write
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.test_model_parameters import FAMILIES, tensors


def counted(path: Path, shapes: Shapes, quantization: dict[str, Any], **more: Any) -> dict[str, Any]:
    config = {"architectures": ["Any"], "quantization_config": quantization, **more}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write(path / "model.safetensors", shapes)
    found = describe(read_folder(str(path)))
    assert found["complete"]
    return found


Packer = Callable[[str, int, int], Shapes]


def fp8_block(name: str, rows: int, columns: int) -> Shapes:
    blocks = [-(-rows // 128), -(-columns // 128)]
    return {f"{name}.weight": ("F8_E4M3", [rows, columns]), f"{name}.weight_scale_inv": ("F32", blocks)}


def awq(name: str, rows: int, columns: int) -> Shapes:
    groups = columns // 128
    return {f"{name}.qweight": ("I32", [columns, rows // 8]), f"{name}.qzeros": ("I32", [groups, rows // 8]),
            f"{name}.scales": ("F16", [groups, rows])}  # fmt: skip


def gptq(bits: int) -> Packer:
    def pack(name: str, rows: int, columns: int) -> Shapes:
        groups = columns // 128
        return {f"{name}.qweight": ("I32", [columns * bits // 32, rows]), f"{name}.qzeros": ("I32", [groups, rows * bits // 32]),
                f"{name}.scales": ("F16", [groups, rows]), f"{name}.g_idx": ("I32", [columns])}  # fmt: skip

    return pack


def modelopt_nvfp4(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": ("U8", [rows, columns // 2]), f"{name}.weight_scale": ("F8_E4M3", [rows, columns // 16]),
            f"{name}.weight_scale_2": ("F32", []), f"{name}.input_scale": ("F32", [])}  # fmt: skip


def packed_nvfp4(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight_packed": ("U8", [rows, columns // 2]), f"{name}.weight_scale": ("F8_E4M3", [rows, columns // 16]),
            f"{name}.weight_global_scale": ("F32", [1]), f"{name}.input_global_scale": ("F32", [1])}  # fmt: skip


def packed_integers(bits: int) -> Packer:
    def pack(name: str, rows: int, columns: int) -> Shapes:
        return {f"{name}.weight_packed": ("I32", [rows, columns * bits // 32]), f"{name}.weight_shape": ("I64", [2]),
                f"{name}.weight_scale": ("BF16", [rows, columns // 128])}  # fmt: skip

    return pack


def fp8_rows(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": ("F8_E4M3", [rows, columns]), f"{name}.weight_scale": ("BF16", [rows, 1])}


def bitsandbytes(name: str, rows: int, columns: int) -> Shapes:
    weight = f"{name}.weight"
    return {weight: ("U8", [rows * columns // 2, 1]), f"{weight}.absmax": ("U8", [rows * columns // 64]),
            f"{weight}.quant_map": ("F32", [16]), f"{weight}.nested_absmax": ("F32", [rows * columns // 64 // 256]),
            f"{weight}.nested_quant_map": ("F32", [256]),
            f"{weight}.quant_state.bitsandbytes__nf4": ("U8", [85])}  # fmt: skip


def groups(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def mixed_groups() -> dict[str, Any]:
    section = groups(type="float", num_bits=4, group_size=16)
    section["config_groups"]["group_1"] = {"weights": {"type": "float", "num_bits": 8}}
    return section


# (a public checkpoint, the original whose parameters it has, its quantization_config, the format, the name that the facts give it)
CHECKPOINTS = [
    ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B",
     {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_block, "fp8"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B",
     {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}, awq, "awq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B",
     {"bits": 4, "desc_act": False, "group_size": 128, "quant_method": "gptq", "sym": True}, gptq(4), "gptq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-7B",
     {"bits": 8, "desc_act": False, "group_size": 128, "quant_method": "gptq", "sym": True}, gptq(8), "gptq"),
    ("nvidia/Llama-3.1-8B-Instruct-FP4", "meta-llama/Llama-3.1-8B",
     {"quant_method": "modelopt", "quant_algo": "NVFP4"}, modelopt_nvfp4, "nvfp4"),
    ("RedHatAI/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B", groups(type="float", num_bits=4, group_size=16), packed_nvfp4, "nvfp4"),
    ("compressed-tensors of two formats", "Qwen/Qwen3-8B", mixed_groups(), packed_nvfp4, "compressed-tensors"),
    ("ModelOpt, mixed", "Qwen/Qwen3-8B", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, modelopt_nvfp4,
     "mixed_precision"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-8B",
     groups(type="int", num_bits=4, group_size=128), packed_integers(4), "int4"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a16", "meta-llama/Llama-3.1-8B",
     groups(type="int", num_bits=8, group_size=128), packed_integers(8), "int8"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-8B", groups(type="float", num_bits=8), fp8_rows, "fp8"),
    ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B",
     {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, bitsandbytes, "bitsandbytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "original", "section", "pack", "called"), CHECKPOINTS, ids=[row[0] for row in CHECKPOINTS])
def test_a_quantized_checkpoint_has_its_original_s_parameters(
    tmp_path: Path, name: str, original: str, section: dict[str, Any], pack: Packer, called: str
) -> None:
    config, published = next((row[1], row[2]) for row in FAMILIES if row[0] == original)
    shapes: Shapes = {}
    for tensor, (dtype, shape) in tensors(config).items():
        shapes |= pack(tensor.removesuffix(".weight"), *shape) if tensor.endswith("_proj.weight") else {tensor: (dtype, shape)}
    found = counted(tmp_path, shapes, section)
    assert (found["quantization"], found["parameters"]) == (called, published)
    assert 0.25 * 2 * published < found["weight_bytes"] < 0.75 * 2 * published


# Values of the two config.json of OpenAI's repositories; the totals are those of the model card's table, in billions.
@pytest.mark.parametrize(("layers", "experts", "published"), [(24, 32, 20.91), (36, 128, 116.83)], ids=["gpt-oss-20b", "gpt-oss-120b"])
def test_gpt_oss(tmp_path: Path, layers: int, experts: int, published: float) -> None:
    hidden, vocabulary, heads, kv, head = 2880, 201_088, 64, 8, 64
    shapes: Shapes = {"embed": ("BF16", [vocabulary, hidden]), "head": ("BF16", [vocabulary, hidden]), "norm": ("BF16", [hidden])}
    for layer in range(layers):
        wide = {"q": heads * head, "k": kv * head, "v": kv * head}
        plain = {f"{name}.weight": [rows, hidden] for name, rows in wide.items()} | {f"{name}.bias": [rows] for name, rows in wide.items()}
        plain |= {"o.weight": [hidden, heads * head], "o.bias": [hidden], "sinks": [heads], "norm1": [hidden], "norm2": [hidden],
                  "router.weight": [experts, hidden], "router.bias": [experts],
                  "gate_up_proj_bias": [experts, 2 * hidden], "down_proj_bias": [experts, hidden]}  # fmt: skip
        shapes |= {f"model.layers.{layer}.{name}": ("BF16", shape) for name, shape in plain.items()}
        for name, rows in {"gate_up_proj": 2 * hidden, "down_proj": hidden}.items():
            shapes[f"model.layers.{layer}.{name}_blocks"] = ("U8", [experts, rows, hidden // 32, 16])
            shapes[f"model.layers.{layer}.{name}_scales"] = ("U8", [experts, rows, hidden // 32])
    found = counted(tmp_path, shapes, {"quant_method": "mxfp4"})
    assert round(found["parameters"] / 1e9, 2) == published


# deepseek-ai/DeepSeek-V3: config.json, and the README's "671B of the main model weights and 14B of the MTP module".
def test_deepseek_v3(tmp_path: Path) -> None:
    hidden, vocabulary, heads, layers, dense = 7168, 129_280, 128, 61, 3
    shapes: Shapes = {"model.embed_tokens.weight": ("BF16", [vocabulary, hidden]), "lm_head.weight": ("BF16", [vocabulary, hidden])}
    for layer in range(layers + 1):
        linear = {"q_a": [1536, hidden], "q_b": [heads * 192, 1536], "kv_a": [512 + 64, hidden], "kv_b": [heads * 256, 512],
                  "o": [hidden, heads * 128]}  # fmt: skip
        parts = ["mlp"] if layer < dense else [f"mlp.experts.{expert}" for expert in range(256)] + ["mlp.shared_experts"]
        width = 18_432 if layer < dense else 2048
        for part in parts:
            linear |= {f"{part}.gate": [width, hidden], f"{part}.up": [width, hidden], f"{part}.down": [hidden, width]}
        for name, (rows, columns) in linear.items():
            shapes |= fp8_block(f"model.layers.{layer}.{name}", rows, columns)
        if layer >= dense:
            shapes[f"model.layers.{layer}.mlp.gate.weight"] = ("BF16", [256, hidden])
            shapes[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = ("F32", [256])
        norms = {"input": hidden, "post": hidden, "q_a_norm": 1536, "kv_a_norm": 512}
        shapes |= {f"model.layers.{layer}.{name}.weight": ("BF16", [size]) for name, size in norms.items()}
    last = f"model.layers.{layers}"
    more = {"embed_tokens": [vocabulary, hidden], "shared_head.head": [vocabulary, hidden], "eh_proj": [hidden, 2 * hidden],
            "enorm": [hidden], "hnorm": [hidden], "shared_head.norm": [hidden]}  # fmt: skip
    shapes |= {f"{last}.{name}.weight": ("BF16", shape) for name, shape in more.items()}
    found = counted(tmp_path, shapes, {"quant_method": "fp8", "weight_block_size": [128, 128]}, num_hidden_layers=layers,
                    num_nextn_predict_layers=1)  # fmt: skip
    assert found["parameters"] // 10**9 in (684, 685)
    assert found["mtp"]["usable"], found["mtp"]["reason"]
    main = {name: tensor for name, tensor in shapes.items() if not name.startswith(last)}
    (tmp_path / "main").mkdir()
    assert counted(tmp_path / "main", main, {"quant_method": "fp8"})["parameters"] // 10**9 == 671
