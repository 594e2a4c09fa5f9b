# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import math
import os
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _model_config as settings
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import INDEX, MAX_FILES, read_folder
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.safetensors_kit import Shapes, pack, write
from hypothesis import given
from hypothesis import strategies as st

HYBRID = {
    "dtype": "bfloat16", "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
    "hidden_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1, "full_attention_interval": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000},
}  # fmt: skip
QWEN36_27B = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "language_model_only": False,
    "text_config": HYBRID, "vision_config": {"depth": 27},
}  # fmt: skip
GDN_32 = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "full_attention_interval": 4, "head_dim": 256, "num_key_value_heads": 2,
    "num_attention_heads": 16, "hidden_size": 2048,
}  # fmt: skip


def dense(layers: int, heads: int, kv: int, hidden: int, context: int, **more: Any) -> dict[str, Any]:
    return {
        "torch_dtype": "bfloat16", "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "hidden_size": hidden, "max_position_embeddings": context, **more,
    }  # fmt: skip


NEMOTRON_H = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
GEMMA3 = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024, "model_type": "gemma3_text"}
MIMO_FULL = (0, 5, 11, 17, 23, 29, 35, 41, 47)


def nested(text: dict[str, Any]) -> dict[str, Any]:
    return {"torch_dtype": "bfloat16", "text_config": text, "vision_config": {"hidden_size": 1152}}


# (name: the values of that repository's config.json, full/sliding/linear layers, KV bytes a token, state bytes, context)
ALTERNATING = ["sliding_attention", "full_attention"] * 18
FAMILIES = [
    ("Qwen/Qwen3.6-27B", QWEN36_27B, (16, 0, 48), 65_536, 153_944_064, 262_144),
    (
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        {"torch_dtype": "bfloat16", "num_hidden_layers": 48, "max_position_embeddings": 262144, **GDN_32},
        (12, 0, 36),
        24_576,
        77_266_944,
        262_144,
    ),
    (
        "Qwen/Qwen3.5-35B-A3B",
        {"text_config": {"dtype": "bfloat16", "num_hidden_layers": 40, "max_position_embeddings": 262144, **GDN_32}, "vision_config": {}},
        (10, 0, 30),
        20_480,
        64_389_120,
        262_144,
    ),
    (
        "meta-llama/Llama-3.1-8B",
        dense(32, 32, 8, 4096, 131072, rope_scaling={"factor": 8.0, "rope_type": "llama3", "original_max_position_embeddings": 8192}),
        (32, 0, 0),
        131_072,
        0,
        131_072,
    ),
    ("meta-llama/Llama-3.1-70B", dense(80, 64, 8, 8192, 131072), (80, 0, 0), 327_680, 0, 131_072),
    ("Qwen/Qwen2.5-7B-Instruct", dense(28, 28, 4, 3584, 32768), (28, 0, 0), 57_344, 0, 32_768),
    (
        "Qwen/Qwen2.5-7B-Instruct, extended as its card says",
        dense(
            28,
            28,
            4,
            3584,
            32768,
            rope_scaling={
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "type": "yarn",
            },
        ),
        (28, 0, 0),
        57_344,
        0,
        32_768,
    ),
    ("Qwen/Qwen3-32B", dense(64, 64, 8, 5120, 40960, head_dim=128), (64, 0, 0), 262_144, 0, 40_960),
    ("Qwen/Qwen3-30B-A3B", dense(48, 32, 4, 2048, 40960, head_dim=128, num_experts=128), (48, 0, 0), 98_304, 0, 40_960),
    (
        "deepseek-ai/DeepSeek-V3",
        dense(
            61,
            128,
            128,
            7168,
            163840,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            v_head_dim=128,
            rope_scaling={"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"},
        ),
        (61, 0, 0),
        70_272,
        0,
        163_840,
    ),
    ("mistralai/Mixtral-8x7B-v0.1", dense(32, 32, 8, 4096, 32768), (32, 0, 0), 131_072, 0, 32_768),
    ("microsoft/phi-4", dense(40, 40, 10, 5120, 16384), (40, 0, 0), 204_800, 0, 16_384),
    (
        "openai/gpt-oss-120b",
        dense(
            36,
            64,
            8,
            2880,
            131072,
            head_dim=64,
            layer_types=ALTERNATING,
            rope_scaling={"factor": 32.0, "rope_type": "yarn", "original_max_position_embeddings": 4096},
        ),
        (18, 18, 0),
        73_728,
        0,
        131_072,
    ),
    (
        "deepseek-ai/DeepSeek-V3.2",
        dense(
            61,
            128,
            128,
            7168,
            163840,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            v_head_dim=128,
            index_head_dim=128,
            index_n_heads=64,
            index_topk=2048,
        ),
        (61, 0, 0),
        78_324,
        0,
        163_840,
    ),
    (
        "google/gemma-2-9b",
        dense(42, 16, 8, 3584, 8192, head_dim=256, sliding_window=4096, model_type="gemma2"),
        (21, 21, 0),
        344_064,
        0,
        8192,
    ),
    # Gemma 3 leaves to its class what equals the default: of the 4B even the heads.
    (
        "google/gemma-3-27b-it",
        nested(
            {"num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "hidden_size": 5376, **GEMMA3}
        ),
        (10, 52, 0),
        507_904,
        0,
        131_072,
    ),
    (
        "google/gemma-3-12b-it",
        nested({"num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8, "hidden_size": 3840, **GEMMA3}),
        (8, 40, 0),
        393_216,
        0,
        131_072,
    ),
    ("google/gemma-3-4b-it", nested({"num_hidden_layers": 34, "hidden_size": 2560, **GEMMA3}), (5, 29, 0), 139_264, 0, 131_072),
    (
        "zai-org/GLM-4.5-Air",
        dense(
            46,
            96,
            8,
            4096,
            131072,
            head_dim=128,
            model_type="glm4_moe",
            n_routed_experts=128,
            num_nextn_predict_layers=1,
            rope_scaling=None,
        ),
        (46, 0, 0),
        188_416,
        0,
        131_072,
    ),
    (
        "nvidia/Nemotron-H-8B-Base-8K",
        dense(
            52,
            32,
            8,
            4096,
            8192,
            attention_head_dim=128,
            hybrid_override_pattern=NEMOTRON_H,
            mamba_num_heads=128,
            mamba_head_dim=64,
            n_groups=8,
            ssm_state_size=128,
            conv_kernel=4,
        ),
        (4, 0, 24),
        16_384,
        102_137_856,
        8192,
    ),
    (
        "Qwen/Qwen2.5-VL-7B-Instruct",
        dense(
            28,
            28,
            4,
            3584,
            128000,
            vision_config={"hidden_size": 1280},
            use_sliding_window=False,
            sliding_window=32768,
            max_window_layers=28,
            rope_scaling={"mrope_section": [16, 24, 24], "type": "mrope"},
        ),
        (28, 0, 0),
        57_344,
        0,
        128_000,
    ),
    (
        "moonshotai/Kimi-Linear-48B-A3B-Instruct",
        {
            "dtype": "bfloat16",
            "num_hidden_layers": 27,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "head_dim": 72,
            "hidden_size": 2304,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "model_max_length": 1048576,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "head_dim": 128,
                "num_heads": 32,
                "short_conv_kernel_size": 4,
            },
        },
        (7, 0, 20),
        8064,
        43_417_600,
        1_048_576,
    ),
    (
        "XiaomiMiMo/MiMo-V2-Flash",
        dense(
            48,
            64,
            4,
            4096,
            262144,
            head_dim=192,
            v_head_dim=128,
            swa_num_key_value_heads=8,
            swa_head_dim=192,
            swa_v_head_dim=128,
            sliding_window=128,
            hybrid_layer_pattern=[int(i not in MIMO_FULL) for i in range(48)],
        ),
        (9, 39, 0),
        222_720,
        0,
        262_144,
    ),
    (
        "linear rope scaling is not in the trained length",
        dense(2, 8, 8, 1024, 4096, rope_scaling={"factor": 4.0, "rope_type": "linear"}),
        (2, 0, 0),
        8192,
        0,
        16_384,
    ),
    (
        "the same, under its newer name",
        dense(2, 8, 8, 1024, 4096, rope_parameters={"factor": 4.0, "rope_type": "linear"}),
        (2, 0, 0),
        8192,
        0,
        16_384,
    ),
    (
        "full layers with heads of their own, as in Gemma 4",
        dense(
            4,
            8,
            4,
            1024,
            4096,
            head_dim=16,
            global_head_dim=32,
            num_global_key_value_heads=1,
            num_kv_shared_layers=0,
            layer_types=["sliding_attention", "full_attention"] * 2,
        ),
        (2, 2, 0),
        2 * (2 * 4 * 32 + 2 * 1 * 64),
        0,
        4096,
    ),
]


@pytest.mark.parametrize(("name", "config", "kinds", "kv", "state", "context"), FAMILIES, ids=[row[0] for row in FAMILIES])
def test_families(name: str, config: dict[str, Any], kinds: tuple[int, ...], kv: int, state: int, context: int) -> None:
    found = settings.layer_kinds(config)
    assert found is not None
    assert (found["full"], found["sliding"], found["linear"]) == kinds
    assert settings.kv_bytes_per_token(config) == kv
    assert settings.state_bytes_per_request(config) == state
    assert settings.max_context(config) == context


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": [8, 8, 4]},
        {"num_key_value_heads": "8"},
        {"num_key_value_heads": 0},
        {"head_dim": "128"},
        {"v_head_dim": [128]},
        {"torch_dtype": "float4"},
        {"torch_dtype": None},
        {"hidden_size": None},
        {"num_kv_shared_layers": 2},
        {"block_configs": [{"attention": {}}]},
        {"compress_ratios": [4, 128]},
        {"per_layer_config": [{"head_dim": 256}]},
        {"indexer_types": ["full", "shared"], "kv_lora_rank": 512},
    ],
    ids=str,
)
def test_a_cache_that_is_not_understood_has_no_size(changes: dict[str, Any]) -> None:
    assert settings.kv_bytes_per_token({**dense(2, 8, 8, 1024, 4096), **changes}) is None


def test_heads_that_are_null_are_those_of_the_queries() -> None:
    assert settings.kv_bytes_per_token({**dense(2, 8, 1, 1024, 4096), "num_key_value_heads": None}) == 2 * 8 * 256 * 2


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"num_hidden_layers": 4, "hybrid_override_pattern": "M-M*M-"}, {"full": 1, "linear": 3, "sliding": 0}),
        ({"num_hidden_layers": 3, "attn_type_list": [0, 0, 1]}, {"full": 1, "linear": 2, "sliding": 0}),
        ({"num_hidden_layers": 4, "linear_attn_config": {"full_attn_layers": [4]}}, {"full": 1, "linear": 3, "sliding": 0}),
        ({"num_hidden_layers": 8, "attn_layer_period": 8, "attn_layer_offset": 4}, {"full": 1, "linear": 7, "sliding": 0}),
        ({"num_hidden_layers": 12, "sliding_window": 1024, "sliding_window_pattern": 6}, {"full": 2, "linear": 0, "sliding": 10}),
        ({"num_hidden_layers": 12, "sliding_window": 1024, "_sliding_window_pattern": 6}, {"full": 2, "linear": 0, "sliding": 10}),
        ({"layer_types": ["conv", "full_attention"]}, {"full": 1, "linear": 1, "sliding": 0}),
        ({"num_hidden_layers": 4, "model_type": "falcon_h1"}, {"full": 4, "linear": 4, "sliding": 0}),
        ({"num_hidden_layers": 3, "layers_block_type": ["mamba", "mamba", "hybrid"]}, {"full": 1, "linear": 3, "sliding": 0}),
        ({"num_hidden_layers": 3, "hybrid_layer_pattern": [0, 1, 1, 1]}, {"full": 1, "linear": 0, "sliding": 2}),
        # the layers behind the model's own are for multi-token prediction
        ({"num_hidden_layers": 1, "layer_types": ["full_attention", "full_attention"]}, {"full": 1, "linear": 0, "sliding": 0}),
        ({"layer_types": [["full_attention"]]}, None),
        # an unknown kind is not guessed
        ({"layer_types": ["quantum_attention"]}, None),
        ({}, None),
        ({"num_hidden_layers": 10**9}, None),
    ],
)
def test_layer_kinds(config: dict[str, Any], kinds: dict[str, int] | None) -> None:
    assert settings.layer_kinds(config) == kinds


def test_mamba2_state() -> None:
    config = {"layer_types": ["mamba"], "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
              "mamba_d_conv": 4}  # fmt: skip
    assert settings.state_bytes_per_request(config) == 3 * (8 * 64 + 2 * 128) * 2 + 8 * 64 * 128 * 4
    assert settings.state_bytes_per_request({"layer_types": ["mamba"]}) is None
    assert settings.state_bytes_per_request({**config, "mamba_ssm_dtype": "bfloat16"}) == 4608 + 8 * 64 * 128 * 2


def tensors(group: dict[str, Any]) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": group}}}}


@pytest.mark.parametrize(
    ("config", "modelopt", "name"),
    [
        ({}, None, None),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, None, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "AWQ"}}}, None, "awq"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, None, "gptq"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, None, "mxfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, None, "nvfp4"),
        ({}, {"quantization": {"quant_algo": "FP8"}}, "fp8"),
        (tensors({"type": "float", "num_bits": 8}), None, "fp8"),
        (tensors({"type": "float", "num_bits": 4, "group_size": 16}), None, "nvfp4"),
        (tensors({"type": "float", "num_bits": 4, "group_size": 32}), None, "mxfp4"),
        (tensors({"type": "int", "num_bits": 4, "group_size": 128}), None, "int4"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, None, "compressed-tensors"),
        (tensors({"type": "float", "num_bits": [8]}), None, "compressed-tensors"),
        ({"compression_config": tensors({"type": "int", "num_bits": 8})["quantization_config"]}, None, "int8"),
        ({}, {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}, None),
        ({"quantization_config": {"odd": 1}}, None, "unknown"),
        ({"quantization_config": "text"}, None, None),
    ],
)
def test_quantization(config: dict[str, Any], modelopt: dict[str, Any] | None, name: str | None) -> None:
    assert settings.quantization(config, modelopt) == name


@pytest.mark.parametrize(
    ("section", "bits"),
    [
        ({"bits": 8}, 8),
        ({"w_bit": 3}, 3),
        ({"bits": 0}, 4),
        ({"bits": 99}, 4),
        ({"bits": "8"}, 4),
        (tensors({"num_bits": 8})["quantization_config"], 8),
        # two widths: not one answer
        ({"config_groups": {"a": {"weights": {"num_bits": 8}}, "b": {"weights": {"num_bits": 2}}}}, 4),
    ],
)
def test_packed_bits(section: dict[str, Any], bits: int) -> None:
    assert settings.packed_bits({"quantization_config": section}) == bits


@pytest.mark.parametrize("names", [["A", 1, None, ["B"]], ["A"]])
def test_architectures_are_names(names: list[Any]) -> None:
    assert settings.architectures({"architectures": names}) == ["A"]


@pytest.mark.parametrize(
    ("name", "layers", "is_mtp"),
    [
        ("mtp.fc.weight", 64, True),
        ("model.mtp_layers.0.norm.weight", 64, True),
        ("model.layers.61.eh_proj.weight", 61, True),
        ("model.layers.60.mlp.up_proj.weight", 61, False),
        ("visual.layers.99.weight", 61, False),
        ("model.layers.61.weight", None, False),
        ("model.language_model.layers.61.weight", 61, True),
        ("language_model.model.layers.61.weight", 61, True),
        ("model.vision_tower.encoder.layers.61.weight", 61, False),
        ("model.nextn.weight", 61, True),
        ("model.mtpx.weight", 61, False),
        ("lm_head.weight", 64, False),
    ],
)
def test_mtp_names(name: str, layers: int | None, is_mtp: bool) -> None:
    assert settings.is_mtp_tensor(name, layers) is is_mtp


A: Shapes = {"model.embed_tokens.weight": ("BF16", [100, 16]), "model.layers.0.weight": ("BF16", [16, 16])}
B: Shapes = {"lm_head.weight": ("BF16", [100, 16]), "visual.weight": ("F32", [3])}
MTP: Shapes = {"mtp.fc.weight": ("BF16", [16, 16])}


def folder(path: Path, index: dict[str, str] | None = None, config: Any = "reference", **files: Shapes) -> Path:
    if config == "reference":
        config = QWEN36_27B
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    for name, shapes in files.items():
        write(path / f"{name}.safetensors", shapes)
    if index is not None:
        (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (path / "tokenizer.json").write_text("{}")
    open_to_all(path)
    return path


def open_to_all(path: Path) -> None:
    """Whatever the umask of whoever runs the tests."""
    path.chmod(0o755)
    for entry in path.iterdir():
        entry.chmod(0o644)


def index_of(**files: Shapes) -> dict[str, str]:
    return {name: f"{file}.safetensors" for file, shapes in files.items() for name in shapes}


def facts(path: Path) -> dict[str, Any]:
    found = describe(read_folder(str(path)))
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in found["problems"]]


def test_a_whole_sharded_model(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, index_of(one=A, two=B), one=A, two=B))
    elements = sum(math.prod(shape) for _dtype, shape in (A | B).values())
    assert found == {
        "path": str(tmp_path),
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "quantization": None,
        "parameters": elements,
        "weight_bytes": (elements - 3) * 2 + 12,
        "layers": 64,
        "attention": {"full": 16, "linear": 48, "sliding": 0},
        "kv_bytes_per_token": 65536,
        "state_bytes_per_request": 153944064,
        "vision": True,
        "max_context": 262144,
        "mtp": {
            "configured": True,
            "indexed": False,
            "files": [],
            "usable": False,
            "reason": "the config announces layers for multi-token prediction, but no MTP tensor is there",
        },
        "complete": True,
        "missing": [],
        "truncated": [],
        "problems": [],
    }


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, model=A | MTP))
    assert found["complete"] and found["mtp"]["indexed"] and found["mtp"]["usable"]
    assert found["mtp"]["files"] == ["model.safetensors"]


def test_mtp_tensors_that_the_index_does_not_name_are_not_usable(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, index_of(one=A), one=A, mtp=MTP))
    assert found["complete"]
    assert found["mtp"] == {
        "configured": True,
        "indexed": False,
        "files": ["mtp.safetensors"],
        "usable": False,
        "reason": "mtp.safetensors is there, but the index names no MTP tensor, so that servers never load it",
    }
    assert found["weight_bytes"] == sum(2 * math.prod(shape) for _dtype, shape in A.values())


def test_mtp_tensors_in_a_file_of_another_name(tmp_path: Path) -> None:
    assert facts(folder(tmp_path, index_of(one=A), one=A, extra=MTP))["mtp"]["files"] == ["extra.safetensors"]


def test_mtp_tensors_that_the_index_names(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, index_of(one=A, mtp=MTP), one=A, mtp=MTP))
    assert found["mtp"]["usable"] and "names their 1 tensors" in found["mtp"]["reason"]


def test_mtp_tensors_that_are_indexed_and_absent(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, index_of(one=A, mtp=MTP), one=A))
    assert not found["mtp"]["usable"] and found["mtp"]["indexed"]
    assert found["missing"] == ["mtp.safetensors"]


def test_a_config_without_mtp(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, config=dense(2, 8, 8, 1024, 4096), model=A))
    assert found["mtp"]["configured"] is False and "announces no layers" in found["mtp"]["reason"]
    assert found["vision"] is False


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    folder(tmp_path, index_of(one=A, two=B, three=MTP), one=A)
    write(tmp_path / "two.safetensors", B, cut=8)
    found = facts(tmp_path)
    assert (found["complete"], found["missing"], found["truncated"]) == (False, ["three.safetensors"], ["two.safetensors"])
    assert codes(found) == ["file_missing", "safetensors_truncated"]


def test_a_damaged_file_that_the_index_does_not_name_is_a_warning(tmp_path: Path) -> None:
    folder(tmp_path, index_of(one=A), one=A)
    (tmp_path / "leftover.safetensors").write_bytes(b"")
    found = facts(tmp_path)
    assert found["complete"] and found["problems"][0]["severity"] == "warning"


def test_an_index_of_another_revision(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, {**index_of(one=A), "model.norm.weight": "one.safetensors"}, one=A))
    assert not found["complete"] and codes(found) == ["tensor_missing"]
    assert "model.norm.weight" in found["problems"][0]["found"]


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("config.json", "{", "config_unreadable", "not JSON"),
        ("config.json", "[]", "config_unreadable", "not a JSON object"),
        ("config.json", "version https://git-lfs.github.com/spec/v1\n", "config_unreadable", "Git LFS"),
        (INDEX, "{}", "index_unreadable", "no weight_map"),
        (INDEX, '{"weight_map": {"a": 1}}', "index_unreadable", "no weight_map"),
        (INDEX, "{", "index_unreadable", "not JSON"),
    ],
)
def test_unreadable_documents(tmp_path: Path, name: str, content: str, code: str, says: str) -> None:
    folder(tmp_path, model=A)
    (tmp_path / name).write_text(content)
    found = facts(tmp_path)
    assert not found["complete"]
    assert code in codes(found) and says in found["problems"][0]["found"]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("model-Q4_K_M.gguf", "unsupported_format", "GGUF"),
        ("pytorch_model.bin", "unsupported_format", "PyTorch"),
        ("README.md", "no_weights", "no weight file"),
    ],
)
def test_folders_without_safetensors(tmp_path: Path, name: str, code: str, says: str) -> None:
    folder(tmp_path)
    (tmp_path / name).write_bytes(b"x")
    found = facts(tmp_path)
    assert not found["complete"] and codes(found) == [code] and says in found["problems"][0]["found"]
    assert found["parameters"] is None and found["weight_bytes"] is None


def test_the_same_tensor_in_two_files(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, one=A, two=A))
    assert not found["complete"] and codes(found) == ["duplicate_tensor"]


def test_a_linked_cache_layout(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    write(blobs / "0123", A)
    folder(snapshot)
    (blobs / "0123").chmod(0o644)
    (snapshot / "model.safetensors").symlink_to("../blobs/0123")
    assert facts(snapshot)["complete"] and codes(facts(snapshot)) == []
    (blobs / "0123").unlink()
    found = facts(snapshot)
    assert codes(found) == ["safetensors_dangling_link"] and found["missing"] == ["model.safetensors"]
    assert "it is a link to ../blobs/0123, which is not there" in found["problems"][0]["found"]


def test_the_top_of_a_cache_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots").chmod(0o755)
    found = facts(tmp_path)
    assert found["problems"][0]["remedy"].endswith("name one of the folders in its snapshots")


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([1, 3], ["model-00002-of-00003.safetensors"]),
        ([3], ["model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"]),
        ([1, 2, 3], []),
    ],
)
def test_a_row_of_files_without_an_index(tmp_path: Path, there: list[int], missing: list[str]) -> None:
    files = {f"model-{number:05d}-of-00003": {f"{number}.weight": ("BF16", [4])} for number in there}
    found = facts(folder(tmp_path, **files))  # type: ignore[arg-type]
    assert (found["missing"], found["complete"]) == (missing, not missing)
    assert codes(found) == ["file_missing"] * bool(missing)


def test_a_row_that_claims_a_hundred_thousand_files_is_cut(tmp_path: Path) -> None:
    files: dict[str, Shapes] = {f"{stem}-00001-of-99999": {stem: ("BF16", [4])} for stem in ("a", "b", "c")}
    found = facts(folder(tmp_path, **files))
    assert len(found["missing"]) == MAX_FILES and len(json.dumps(found["problems"])) < 2000


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("../outside.safetensors", "index_outside"),
        ("sub/model.safetensors", "index_outside"),
        ("/etc/passwd", "index_outside"),
        ("..", "index_outside"),
        ("", "index_outside"),
        ("model\0.safetensors", "file_missing"),
        ("model.bin", "unsupported_format"),
    ],
)
def test_an_index_that_names_something_else(tmp_path: Path, file: str, code: str) -> None:
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    for name in ("outside.safetensors", "inner/sub/model.safetensors", "inner/model.bin"):
        write(tmp_path / name, MTP)
    found = facts(folder(inner, {**index_of(one=A), "mtp.fc.weight": file}, one=A))
    assert code in codes(found) and not found["complete"] and not found["mtp"]["usable"]
    assert found["weight_bytes"] == sum(2 * math.prod(shape) for _dtype, shape in A.values())


def test_many_files_that_are_missing_are_one_problem(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, {f"{n}.weight": f"{n}.safetensors" for n in range(5000)}))
    assert len(found["missing"]) == 5000 and codes(found) == ["file_missing"]
    assert "and 4997 more" in found["problems"][0]["found"]


def test_a_link_to_nothing_that_the_index_names_is_one_problem(tmp_path: Path) -> None:
    folder(tmp_path, index_of(one=A, mtp=MTP), one=A)
    (tmp_path / "mtp.safetensors").symlink_to("gone")
    found = facts(tmp_path)
    assert codes(found) == ["safetensors_dangling_link"] and found["missing"] == ["mtp.safetensors"]
    assert found["mtp"]["indexed"] and not found["mtp"]["usable"]


@pytest.mark.parametrize(("index", "code"), [(None, "no_weights"), ({"a": "model.safetensors"}, "tensor_missing")])
def test_a_file_of_bytes_that_belong_to_no_tensor(tmp_path: Path, index: dict[str, str] | None, code: str) -> None:
    folder(tmp_path, index)
    (tmp_path / "model.safetensors").write_bytes(pack(b"{}") + b"rest")
    open_to_all(tmp_path)
    found = facts(tmp_path)
    assert code in codes(found) and not found["complete"]


def test_an_empty_index_is_no_model(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, {}, one=A))
    assert codes(found) == ["no_weights"] and not found["complete"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", INDEX])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "socket"])
def test_what_is_no_file_is_named_and_never_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    folder(tmp_path, index_of(model=A), model=A)
    path = tmp_path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path, 0o644)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
    else:
        path.symlink_to(name)
    found = facts(tmp_path)
    assert not found["complete"]
    words = {"pipe": "a named pipe", "folder": "a folder", "device": "a device", "loop": "symbolic links", "socket": "a socket"}
    assert any(words[kind] in problem["found"] for problem in found["problems"])


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    folder(tmp_path, model=A)
    for name, enough in (("tokenizer.json", True), ("tokenizer.model", True), ("vocab.json", True), ("tekken.json", True),
                         ("tokenizer_config.json", False), ("my-tokenizer.json.bak", False)):  # fmt: skip
        for entry in tmp_path.glob("*"):
            if entry.name not in ("config.json", "model.safetensors"):
                entry.unlink()
        (tmp_path / name).write_text("{}")
        open_to_all(tmp_path)
        found = facts(tmp_path)
        assert codes(found) == ([] if enough else ["tokenizer_missing"]), name
        assert found["complete"]


@pytest.mark.parametrize(
    ("name", "mode", "private"),
    [
        ("model.safetensors", 0o600, True),
        ("config.json", 0o640, True),
        (".", 0o750, True),
        (".", 0o754, True),
        ("model.safetensors", 0o604, False),
    ],
)
def test_files_that_another_user_cannot_read(tmp_path: Path, name: str, mode: int, private: bool) -> None:
    folder(tmp_path, model=A)
    (tmp_path / name).chmod(mode)
    found = facts(tmp_path)
    assert codes(found) == ["not_readable_by_others"] * private
    assert found["complete"] and (not private or "1 entries" in found["problems"][0]["found"])


def test_a_link_to_a_closed_file_counts_as_closed(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    folder(tmp_path / "snapshot", model=A)
    weights = tmp_path / "snapshot" / "model.safetensors"
    weights.rename(tmp_path / "blob")
    (tmp_path / "blob").chmod(0o600)
    weights.symlink_to("../blob")
    assert codes(facts(tmp_path / "snapshot")) == ["not_readable_by_others"]


def test_a_folder_of_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, model=A)
    assert codes(facts(tmp_path)) == []
    monkeypatch.setattr("os.listdir", lambda _path: ["config.json", "model.safetensors", "tokenizer.json", *["~"] * MAX_FILES])
    found = facts(tmp_path)
    assert codes(found) == ["too_many_files"] and "3 entries beyond" in found["problems"][0]["found"]


@pytest.mark.parametrize("name", ["generation_config.json", "hf_quant_config.json"])
@pytest.mark.parametrize("content", ["version https://git-lfs.github.com/spec/v1\n", "{", "[]"])
def test_a_damaged_file_that_may_be_absent(tmp_path: Path, name: str, content: str) -> None:
    folder(tmp_path, model=A)
    (tmp_path / name).write_text(content)
    open_to_all(tmp_path)
    found = facts(tmp_path)
    assert codes(found) == ["side_file_unreadable"] and found["problems"][0]["found"].startswith(name)
    (tmp_path / name).write_text("{}")
    assert codes(facts(tmp_path)) == []


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so that the refusal is played by the call that would give it."""
    folder(tmp_path, index_of(model=A), model=A)
    real = os.open

    def refuse(path: str, *arguments: Any, **more: Any) -> int:
        if path.endswith(".safetensors"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments, **more)

    monkeypatch.setattr("os.open", refuse)
    found = facts(tmp_path)
    assert codes(found) == ["safetensors_unreadable"] and not found["complete"]


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder(tmp_path, {**index_of(one=A), "x": "\ud800.safetensors"}, one=A)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/mtp\xff.safetensors")).write_bytes(b"")
    found = facts(tmp_path)
    assert found["missing"] == ["\\ud800.safetensors"] and found["truncated"] == ["mtp\\udcff.safetensors"]


@pytest.mark.parametrize(
    ("method", "shapes", "parameters"),
    [
        ("fp8", {"a.weight": ("F8_E4M3", [128, 128]), "a.weight_scale_inv": ("F32", [1, 1])}, 16384),
        ("awq", {"a.qweight": ("I32", [128, 16]), "a.qzeros": ("I32", [1, 16]), "a.scales": ("F16", [1, 128])}, 16384),
        ("gptq", {"a.qweight": ("I32", [16, 128]), "a.g_idx": ("I32", [128])}, 16384),
        ("nvfp4", {"a.weight": ("U8", [128, 64]), "a.weight_scale": ("F8_E4M3", [128, 8]), "a.weight_scale_2": ("F32", [])}, 16384),
        ("mxfp4", {"a_blocks": ("U8", [128, 4, 16]), "a_scales": ("U8", [128, 4])}, 16384),
    ],
)
def test_parameters_of_quantized_weights(tmp_path: Path, method: str, shapes: Shapes, parameters: int) -> None:
    config = {**QWEN36_27B, "quantization_config": {"quant_method": method}}
    found = facts(folder(tmp_path, config=config, model=shapes))
    assert (found["quantization"], found["parameters"]) == (method, parameters)


def test_what_the_config_does_not_tell_is_null_and_said(tmp_path: Path) -> None:
    found = facts(folder(tmp_path, config={"architectures": ["New"], "layer_types": ["quantum"]}, model=A))
    assert found["attention"] is None and found["kv_bytes_per_token"] is None
    assert {problem["code"] for problem in found["problems"]} == {"config_incomplete"}
    assert found["complete"], "a config that is not understood does not make the files incomplete"


# Written as text: Python's own writer refuses or changes some of it.
HOSTILE = {
    "nested": '{"text_config":' * 50_000 + "1" + "}" * 50_000,
    "nested within limits": '{"text_config":' * 300 + "{}" + "}" * 300,
    "lists": '{"layer_types":' + "[" * 50_000 + "]" * 50_000 + "}",
    "not a number": '{"num_hidden_layers": NaN, "hidden_size": Infinity, "head_dim": -Infinity}',
    "texts": '{"num_hidden_layers": "64", "num_attention_heads": "8", "hidden_size": "1024", "torch_dtype": "bfloat16"}',
    "negative": '{"num_hidden_layers": -64, "num_attention_heads": -8, "hidden_size": -1, "torch_dtype": "bfloat16"}',
    "infinite": '{"num_hidden_layers": 1e400, "max_position_embeddings": 1e400, "rope_scaling": {"factor": 1e400}}',
    "long": '{"num_hidden_layers": ' + "9" * 4000 + "}",
    "longer": '{"num_hidden_layers": ' + "9" * 100_000 + "}",
    "booleans": '{"num_hidden_layers": true, "num_attention_heads": true, "hidden_size": true, "head_dim": false}',
    "a list for text_config": '{"text_config": [{"num_hidden_layers": 2}], "vision_config": [1], "architectures": {"a": 1}}',
    "half a character": '{"architectures": ["\\ud800"], "model_type": "\\udfff", "torch_dtype": "\\ud800"}',
    "an empty file": "",
    "a comment": "// no",
    "twice": '{"model_type": "a", "model_type": "b"}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_config_is_a_problem(tmp_path: Path, kind: str) -> None:
    folder(tmp_path, model=A)
    (tmp_path / "config.json").write_text(HOSTILE[kind], encoding="utf-8")
    found = facts(tmp_path)
    assert found["problems"], "what is not understood is said"
    assert found["kv_bytes_per_token"] is None and found["layers"] in (None, 64)
    assert all(len(problem["found"]) < 1000 for problem in found["problems"])


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", b'{"a": "\xe9"}', b"\x00" * 100, b"\xef\xbb\xbf{}"])
def test_a_config_that_is_not_utf_8(tmp_path: Path, data: bytes) -> None:
    folder(tmp_path, model=A)
    (tmp_path / "config.json").write_bytes(data)
    assert codes(facts(tmp_path)) == ["config_unreadable"]


def test_a_huge_config_is_not_read(tmp_path: Path) -> None:
    folder(tmp_path, model=A)
    os.truncate(tmp_path / "config.json", 1 << 40)
    found = facts(tmp_path)
    assert codes(found) == ["config_unreadable"] and "larger than" in found["problems"][0]["found"]


def test_a_small_index_takes_little_memory(tmp_path: Path) -> None:
    folder(tmp_path, index_of(one=A), one=A)
    tracemalloc.start()
    try:
        facts(tmp_path)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers(), max_size=3)
KEYS = sorted({*HYBRID, *QWEN36_27B, "quantization_config", "rope_scaling", "kv_lora_rank", "attn_type_list",
               "linear_attn_config", "attn_layer_period", "hybrid_override_pattern", "hybrid_layer_pattern", "model_type", "bits",
               "config_groups", "weights", "num_bits", "swa_head_dim", "global_head_dim", "index_topk", "index_head_dim"})  # fmt: skip
CONFIG = st.dictionaries(st.sampled_from(KEYS), VALUE | st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=6), max_size=12)


@given(CONFIG)
def test_any_config_never_crashes(tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any-model"
    path.mkdir(exist_ok=True)
    facts(folder(path, config=config, model=A))
