# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of public checkpoints: the tensors are laid out here as their configuration says, and counted by model_facts.

The last column is the total that is published for the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import read_folder
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.safetensors_kit import Shapes, write


@dataclass(frozen=True)
class Config:
    """Values of one repository's config.json, and how its family lays out a layer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    experts: int = 0
    qkv_bias: bool = False
    qk_norm: bool = False
    fused: bool = False
    norms: int = 2


FAMILIES = [
    ("meta-llama/Llama-3.1-8B", Config(32, 4096, 32, 8, 128, 14336, 128256), 8_030_261_248),
    ("meta-llama/Llama-3.1-70B", Config(80, 8192, 64, 8, 128, 28672, 128256), 70_553_706_496),
    ("meta-llama/Llama-3.2-1B", Config(16, 2048, 32, 8, 64, 8192, 128256, tied=True), 1_235_814_400),
    ("mistralai/Mistral-7B-v0.1", Config(32, 4096, 32, 8, 128, 14336, 32000), 7_241_732_096),
    ("mistralai/Mixtral-8x7B-v0.1", Config(32, 4096, 32, 8, 128, 14336, 32000, experts=8), 46_702_792_704),
    ("Qwen/Qwen2.5-7B", Config(28, 3584, 28, 4, 128, 18944, 152064, qkv_bias=True), 7_615_616_512),
    ("Qwen/Qwen3-8B", Config(36, 4096, 32, 8, 128, 12288, 151936, qk_norm=True), 8_190_735_360),
    ("Qwen/Qwen3-32B", Config(64, 5120, 64, 8, 128, 25600, 151936, qk_norm=True), 32_762_123_264),
    ("Qwen/Qwen3-30B-A3B", Config(48, 2048, 32, 4, 128, 768, 151936, qk_norm=True, experts=128), 30_532_122_624),
    ("microsoft/phi-4", Config(40, 5120, 40, 10, 128, 17920, 100352, fused=True), 14_659_507_200),
    ("google/gemma-2-9b", Config(42, 3584, 16, 8, 256, 14336, 256000, tied=True, norms=4), 9_241_705_984),
]


def tensors(config: Config) -> Shapes:
    found: dict[str, list[int]] = {"model.embed_tokens.weight": [config.vocabulary, config.hidden], "model.norm.weight": [config.hidden]}
    if not config.tied:
        found["lm_head.weight"] = [config.vocabulary, config.hidden]
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for number in range(config.layers):
        layer = f"model.layers.{number}"
        found |= {f"{layer}.norm{norm}.weight": [config.hidden] for norm in range(config.norms)}
        attention = {"qkv": queries + 2 * keys} if config.fused else {"q": queries, "k": keys, "v": keys}
        found |= {f"{layer}.self_attn.{name}_proj.weight": [rows, config.hidden] for name, rows in attention.items()}
        found[f"{layer}.self_attn.o_proj.weight"] = [config.hidden, queries]
        if config.qkv_bias:
            found |= {f"{layer}.self_attn.{name}_proj.bias": [rows] for name, rows in attention.items()}
        if config.qk_norm:
            found |= {f"{layer}.self_attn.{name}_norm.weight": [config.head_dim] for name in "qk"}
        parts = [f"mlp.experts.{expert}" for expert in range(config.experts)] or ["mlp"]
        if config.experts:
            found[f"{layer}.mlp.gate.weight"] = [config.experts, config.hidden]
        for part in parts:
            up = {"gate_up": 2 * config.intermediate} if config.fused else {"gate": config.intermediate, "up": config.intermediate}
            found |= {f"{layer}.{part}.{name}_proj.weight": [rows, config.hidden] for name, rows in up.items()}
            found[f"{layer}.{part}.down_proj.weight"] = [config.hidden, config.intermediate]
    return {name: ("BF16", shape) for name, shape in found.items()}


@pytest.mark.parametrize(("name", "config", "published"), FAMILIES, ids=[row[0] for row in FAMILIES])
def test_parameters_and_bytes(tmp_path: Path, name: str, config: Config, published: int) -> None:
    values = {
        "architectures": ["Any"], "dtype": "bfloat16", "num_hidden_layers": config.layers, "hidden_size": config.hidden,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    write(tmp_path / "model.safetensors", tensors(config))
    found = describe(read_folder(str(tmp_path)))
    assert found["parameters"] == published
    assert found["weight_bytes"] == 2 * published
    assert found["kv_bytes_per_token"] == 2 * config.layers * config.kv_heads * config.head_dim * 2
    assert found["complete"]
