# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Qwen3.6-27B by its published values: configuration, and every tensor's name and shape.

With the MTP head the list has 1199 tensors of 55,562,855,904 bytes, the figures of the published index.
"""

from __future__ import annotations

from typing import Any

Shape = tuple[int, ...]

LAYERS = 64
HIDDEN, INTERMEDIATE, VOCABULARY = 5120, 17408, 248320
HEADS, KV_HEADS, HEAD_DIM = 24, 4, 256
KEY_HEADS, VALUE_HEADS, LINEAR_DIM, CONV = 16, 48, 128, 4
VISION_DEPTH, VISION_HIDDEN, VISION_INTERMEDIATE, VISION_POSITIONS, PATCH = 27, 1152, 4304, 2304, 16


def layer_type(layer: int) -> str:
    return "full_attention" if layer % 4 == 3 else "linear_attention"


def config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "image_token_id": 248056,
        "model_type": "qwen3_5",
        "text_config": {
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_output_gate": True,
            "dtype": "bfloat16",
            "eos_token_id": 248044,
            "full_attention_interval": 4,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "initializer_range": 0.02,
            "intermediate_size": INTERMEDIATE,
            "layer_types": [layer_type(layer) for layer in range(LAYERS)],
            "linear_conv_kernel_dim": CONV,
            "linear_key_head_dim": LINEAR_DIM,
            "linear_num_key_heads": KEY_HEADS,
            "linear_num_value_heads": VALUE_HEADS,
            "linear_value_head_dim": LINEAR_DIM,
            "mamba_ssm_dtype": "float32",
            "max_position_embeddings": 262144,
            "mlp_only_layers": [],
            "model_type": "qwen3_5_text",
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "mrope_interleaved": True,
                "mrope_section": [11, 11, 10],
                "partial_rotary_factor": 0.25,
                "rope_theta": 10000000,
                "rope_type": "default",
            },
            "tie_word_embeddings": False,
            "use_cache": True,
            "vocab_size": VOCABULARY,
        },
        "tie_word_embeddings": False,
        "video_token_id": 248057,
        "vision_config": {
            "deepstack_visual_indexes": [],
            "depth": VISION_DEPTH,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": VISION_HIDDEN,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": VISION_INTERMEDIATE,
            "model_type": "qwen3_5",
            "num_heads": 16,
            "num_position_embeddings": VISION_POSITIONS,
            "out_hidden_size": HIDDEN,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": 248054,
        "vision_start_token_id": 248053,
    }


def _full_attention() -> dict[str, Shape]:
    return {
        # Twice the heads: the second half is the output gate.
        "self_attn.q_proj.weight": (2 * HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        "self_attn.q_norm.weight": (HEAD_DIM,),
        "self_attn.k_norm.weight": (HEAD_DIM,),
    }


def _linear_attention() -> dict[str, Shape]:
    channels = (2 * KEY_HEADS + VALUE_HEADS) * LINEAR_DIM
    values = VALUE_HEADS * LINEAR_DIM
    return {
        "linear_attn.A_log": (VALUE_HEADS,),
        "linear_attn.conv1d.weight": (channels, 1, CONV),
        "linear_attn.dt_bias": (VALUE_HEADS,),
        "linear_attn.in_proj_a.weight": (VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_b.weight": (VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_qkv.weight": (channels, HIDDEN),
        "linear_attn.in_proj_z.weight": (values, HIDDEN),
        "linear_attn.norm.weight": (LINEAR_DIM,),
        "linear_attn.out_proj.weight": (HIDDEN, values),
    }


def _rest_of_layer() -> dict[str, Shape]:
    return {
        "input_layernorm.weight": (HIDDEN,),
        "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "post_attention_layernorm.weight": (HIDDEN,),
    }


def _linear(name: str, out_size: int, in_size: int) -> dict[str, Shape]:
    return {f"{name}.weight": (out_size, in_size), f"{name}.bias": (out_size,)}


def _norm(name: str, size: int) -> dict[str, Shape]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _vision() -> dict[str, Shape]:
    merged = 4 * VISION_HIDDEN
    tensors: dict[str, Shape] = {
        "patch_embed.proj.weight": (VISION_HIDDEN, 3, 2, PATCH, PATCH),
        "patch_embed.proj.bias": (VISION_HIDDEN,),
        "pos_embed.weight": (VISION_POSITIONS, VISION_HIDDEN),
        **_norm("merger.norm", VISION_HIDDEN),
        **_linear("merger.linear_fc1", merged, merged),
        **_linear("merger.linear_fc2", HIDDEN, merged),
    }
    for block in range(VISION_DEPTH):
        tensors |= _norm(f"blocks.{block}.norm1", VISION_HIDDEN)
        tensors |= _norm(f"blocks.{block}.norm2", VISION_HIDDEN)
        tensors |= _linear(f"blocks.{block}.attn.qkv", 3 * VISION_HIDDEN, VISION_HIDDEN)
        tensors |= _linear(f"blocks.{block}.attn.proj", VISION_HIDDEN, VISION_HIDDEN)
        tensors |= _linear(f"blocks.{block}.mlp.linear_fc1", VISION_INTERMEDIATE, VISION_HIDDEN)
        tensors |= _linear(f"blocks.{block}.mlp.linear_fc2", VISION_HIDDEN, VISION_INTERMEDIATE)
    return {f"model.visual.{name}": shape for name, shape in tensors.items()}


def tensors() -> dict[str, Shape]:
    """Everything but the MTP head, in the order of the shards."""
    found: dict[str, Shape] = {"model.language_model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        attention = _full_attention() if layer_type(layer) == "full_attention" else _linear_attention()
        for name, shape in {**attention, **_rest_of_layer()}.items():
            found[f"model.language_model.layers.{layer}.{name}"] = shape
    found["model.language_model.norm.weight"] = (HIDDEN,)
    found |= _vision()
    found["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return found


def mtp_tensors() -> dict[str, Shape]:
    head: dict[str, Shape] = {
        "mtp.fc.weight": (HIDDEN, 2 * HIDDEN),
        "mtp.norm.weight": (HIDDEN,),
        "mtp.pre_fc_norm_embedding.weight": (HIDDEN,),
        "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
    }
    layer = {**_full_attention(), **_rest_of_layer()}
    return head | {f"mtp.layers.0.{name}": shape for name, shape in layer.items()}
