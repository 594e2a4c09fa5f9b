# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _model_config as settings
from ansible_collections.blackwell.inference.plugins.module_utils._model import INDEX, describe, read_folder
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.safetensors_kit import Shapes, write
from hypothesis import given
from hypothesis import settings as profile
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


# (name: the values of that repository's config.json, full/sliding/linear layers, KV bytes a token, state bytes, context)
ALTERNATING = ["sliding_attention", "full_attention"] * 18
FAMILIES = [
    ("Qwen/Qwen3.6-27B", QWEN36_27B, (16, 0, 48), 65_536, 153_944_064, 262_144),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct",
     {"torch_dtype": "bfloat16", "num_hidden_layers": 48, "max_position_embeddings": 262144, **GDN_32},
     (12, 0, 36), 24_576, 77_266_944, 262_144),
    ("Qwen/Qwen3.5-35B-A3B",
     {"text_config": {"dtype": "bfloat16", "num_hidden_layers": 40, "max_position_embeddings": 262144, **GDN_32},
      "vision_config": {}}, (10, 0, 30), 20_480, 64_389_120, 262_144),
    ("meta-llama/Llama-3.1-8B", dense(32, 32, 8, 4096, 131072, rope_scaling={
        "factor": 8.0, "rope_type": "llama3", "original_max_position_embeddings": 8192}), (32, 0, 0), 131_072, 0, 131_072),
    ("meta-llama/Llama-3.1-70B", dense(80, 64, 8, 8192, 131072), (80, 0, 0), 327_680, 0, 131_072),
    ("Qwen/Qwen2.5-7B-Instruct", dense(28, 28, 4, 3584, 32768), (28, 0, 0), 57_344, 0, 32_768),
    ("Qwen/Qwen2.5-7B-Instruct, extended as its card says", dense(28, 28, 4, 3584, 32768, rope_scaling={
        "factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn",
    }), (28, 0, 0), 57_344, 0, 32_768),
    ("Qwen/Qwen3-32B", dense(64, 64, 8, 5120, 40960, head_dim=128), (64, 0, 0), 262_144, 0, 40_960),
    ("Qwen/Qwen3-30B-A3B", dense(48, 32, 4, 2048, 40960, head_dim=128, num_experts=128), (48, 0, 0), 98_304, 0, 40_960),
    ("deepseek-ai/DeepSeek-V3", dense(61, 128, 128, 7168, 163840, kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, rope_scaling={
        "factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}), (61, 0, 0), 70_272, 0, 163_840),
    ("mistralai/Mixtral-8x7B-v0.1", dense(32, 32, 8, 4096, 32768), (32, 0, 0), 131_072, 0, 32_768),
    ("microsoft/phi-4", dense(40, 40, 10, 5120, 16384), (40, 0, 0), 204_800, 0, 16_384),
    ("openai/gpt-oss-120b", dense(36, 64, 8, 2880, 131072, head_dim=64, layer_types=ALTERNATING, rope_scaling={
        "factor": 32.0, "rope_type": "yarn", "original_max_position_embeddings": 4096}), (18, 18, 0), 73_728, 0, 131_072),
    ("linear rope scaling is not in the trained length", dense(2, 8, 8, 1024, 4096, rope_scaling={
        "factor": 4.0, "rope_type": "linear"}), (2, 0, 0), 8192, 0, 16_384),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config", "kinds", "kv", "state", "context"), FAMILIES, ids=[row[0] for row in FAMILIES])
def test_families(name: str, config: dict[str, Any], kinds: tuple[int, ...], kv: int, state: int, context: int) -> None:
    found = settings.layer_kinds(config)
    assert found is not None
    assert (found["full"], found["sliding"], found["linear"]) == kinds
    assert settings.kv_bytes_per_token(config) == kv
    assert settings.state_bytes_per_request(config) == state
    assert settings.max_context(config) == context


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"num_hidden_layers": 4, "hybrid_override_pattern": "M-M*M-"}, {"full": 1, "linear": 3, "sliding": 0}),
        ({"num_hidden_layers": 3, "attn_type_list": [0, 0, 1]}, {"full": 1, "linear": 2, "sliding": 0}),
        ({"num_hidden_layers": 4, "linear_attn_config": {"full_attn_layers": [4]}}, {"full": 1, "linear": 3, "sliding": 0}),
        ({"num_hidden_layers": 8, "attn_layer_period": 8, "attn_layer_offset": 4}, {"full": 1, "linear": 7, "sliding": 0}),
        ({"num_hidden_layers": 12, "sliding_window": 1024, "sliding_window_pattern": 6}, {"full": 2, "linear": 0, "sliding": 10}),
        ({"layer_types": ["conv", "full_attention"]}, {"full": 1, "linear": 1, "sliding": 0}),
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
        ({"quantization_config": {"odd": 1}}, None, "unknown"),
        ({"quantization_config": "text"}, None, None),
    ],
)
def test_quantization(config: dict[str, Any], modelopt: dict[str, Any] | None, name: str | None) -> None:
    assert settings.quantization(config, modelopt) == name


@pytest.mark.parametrize(
    ("name", "layers", "is_mtp"),
    [
        ("mtp.fc.weight", 64, True),
        ("model.mtp_layers.0.norm.weight", 64, True),
        ("model.layers.61.eh_proj.weight", 61, True),
        ("model.layers.60.mlp.up_proj.weight", 61, False),
        ("visual.layers.99.weight", 61, False),
        ("model.layers.61.weight", None, False),
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
    return path


def index_of(**files: Shapes) -> dict[str, str]:
    return {name: f"{file}.safetensors" for file, shapes in files.items() for name in shapes}


def facts(path: Path) -> dict[str, Any]:
    found = describe(read_folder(str(path)))
    json.dumps(found)
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
    (snapshot / "model.safetensors").symlink_to("../blobs/0123")
    assert facts(snapshot)["complete"]
    (blobs / "0123").unlink()
    assert codes(facts(snapshot)) == ["safetensors_unreadable"]


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


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers(), max_size=3)
KEYS = sorted({*HYBRID, *QWEN36_27B, "quantization_config", "rope_scaling", "kv_lora_rank", "attn_type_list",
               "linear_attn_config", "attn_layer_period", "hybrid_override_pattern"})  # fmt: skip
CONFIG = st.dictionaries(
    st.sampled_from(KEYS), VALUE | st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=6), max_size=12
)


@profile(max_examples=200, deadline=None)
@given(CONFIG)
def test_any_config_never_crashes(tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any-model"
    path.mkdir(exist_ok=True)
    facts(folder(path, config=config, model=A))
