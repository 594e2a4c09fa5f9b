# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model's config.json says: layers, attention, cache sizes, quantization. Pure; the files are read elsewhere.

Cache sizes are those of SGLang's pools (0.5.23):
- keys and values: 2 x KV heads x head size x bytes for each layer that keeps them, in the model's own type; latent
  attention (MLA) keeps `kv_lora_rank + qk_rope_head_dim` values a layer instead.
- state of a linear layer, once a request (srt/configs/mamba_utils.py, Mamba2StateShape.create and mamba_cache_per_req):
  convolution = (kernel - 1) x (inner size + 2 x groups x state size) values in bfloat16
  (SGLANG_MAMBA_CONV_DTYPE's default, whatever the model's type);
  recurrent = heads x head size x state size values in `mamba_ssm_dtype`, float32 unless the config says otherwise.
  Gated DeltaNet: inner size = value heads x value head size, groups = key heads, state size = key head size.
"""

from __future__ import annotations

from typing import Any

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "half": 2, "float": 4}
CONV_BYTES = 2
MAX_LAYERS = 100_000

FULL = ("full_attention", "attention", "full", "global_attention", "hybrid")
SLIDING = ("sliding_attention", "chunked_attention", "local_attention", "sliding")
LINEAR = ("linear_attention", "mamba", "mamba2", "linear", "recurrent", "conv", "short_conv", "lightning_attention")


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part: multimodal configs nest it, some of them twice (thinker)."""
    found = config
    for _depth in range(3):
        nested = next(
            (found[key] for key in ("text_config", "llm_config", "language_config", "thinker_config")
             if isinstance(found.get(key), dict)),
            None,
        )  # fmt: skip
        if nested is None:
            return found
        found = nested
    return found


def number(config: dict[str, Any], *names: str) -> int | None:
    """The first of `names` that is a whole number of sane size."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    return None


def dtype(config: dict[str, Any]) -> str | None:
    for part in (config, text_config(config)):
        for name in ("dtype", "torch_dtype"):
            value = part.get(name)
            if isinstance(value, str):
                return value.rpartition(".")[2]
    return None


def quantization(config: dict[str, Any], modelopt: dict[str, Any] | None = None) -> str | None:
    """fp8, nvfp4, mxfp4, awq, gptq, ...; `modelopt` is hf_quant_config.json, which older exports carry beside it."""
    section = config.get("quantization_config") or text_config(config).get("quantization_config")
    if not isinstance(section, dict) or not section:
        section = (modelopt or {}).get("quantization")
        if not isinstance(section, dict) or not section:
            return None
    algorithm = section.get("quant_algo")
    if isinstance(algorithm, str):
        return algorithm.lower()
    method = section.get("quant_method")
    method = method.lower() if isinstance(method, str) else None
    if method == "compressed-tensors":
        return _compressed_tensors(section)
    return method or "unknown"


def _compressed_tensors(section: dict[str, Any]) -> str:
    groups = section.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]
    kinds = {(str(entry.get("type")), entry.get("num_bits"), entry.get("group_size")) for entry in weights}
    if len(kinds) == 1:
        kind, bits, group = kinds.pop()
        if kind == "float" and bits == 8:
            return "fp8"
        if kind == "float" and bits == 4:
            return "mxfp4" if group == 32 else "nvfp4"
        if kind == "int" and bits in (4, 8):
            return f"int{bits}"
    return "compressed-tensors"


def layer_kinds(config: dict[str, Any]) -> dict[str, int] | None:
    """{"full", "linear", "sliding"}: how many layers of each kind; None when the config does not tell."""
    text = text_config(config)
    layers = number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    names = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(names, list) and names:
        return _count([str(name) for name in names])
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return {"full": pattern.count("*"), "linear": pattern.count("M"), "sliding": 0}
    if layers is None or layers > MAX_LAYERS:
        return None
    listed = text.get("attn_type_list")
    if isinstance(listed, list) and listed:
        full = sum(1 for kind in listed if kind == 1)
        return {"full": full, "linear": len(listed) - full, "sliding": 0}
    kimi = text.get("linear_attn_config")
    if isinstance(kimi, dict) and isinstance(kimi.get("full_attn_layers"), list):
        full = len(kimi["full_attn_layers"])
        return {"full": full, "linear": max(0, layers - full), "sliding": 0}
    interval = number(text, "full_attention_interval")
    if interval and number(text, "linear_num_value_heads"):
        full = layers // interval
        return {"full": full, "linear": layers - full, "sliding": 0}
    period = number(text, "attn_layer_period")
    if period:
        offset = number(text, "attn_layer_offset") or 0
        full = sum(1 for layer in range(layers) if layer % period == offset)
        return {"full": full, "linear": layers - full, "sliding": 0}
    window = number(text, "sliding_window_pattern")
    if window and number(text, "sliding_window"):
        full = layers // window
        return {"full": full, "linear": 0, "sliding": layers - full}
    return {"full": layers, "linear": 0, "sliding": 0}


def _count(names: list[str]) -> dict[str, int] | None:
    known = (*FULL, *SLIDING, *LINEAR, "mlp", "moe")
    if any(name not in known for name in names):
        return None
    return {
        "full": sum(name in FULL for name in names),
        "linear": sum(name in LINEAR for name in names),
        "sliding": sum(name in SLIDING for name in names),
    }


def kv_bytes_per_token(config: dict[str, Any]) -> int | None:
    """Bytes of keys and values that one token adds, over all layers that keep any (sliding ones within their window)."""
    text = text_config(config)
    kinds = layer_kinds(config)
    size = DTYPE_BYTES.get(dtype(config) or "")
    if kinds is None or size is None:
        return None
    layers = kinds["full"] + kinds["sliding"]
    rank = number(text, "kv_lora_rank")
    if rank:
        return layers * (rank + (number(text, "qk_rope_head_dim") or 0)) * size
    heads = number(text, "num_attention_heads", "n_head")
    kv_heads = number(text, "num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads
    hidden = number(text, "hidden_size", "n_embd")
    head = number(text, "head_dim", "attention_head_dim") or (hidden // heads if hidden and heads else None)
    if not kv_heads or not head:
        return None
    return layers * kv_heads * (head + (number(text, "v_head_dim") or head)) * size


def state_bytes_per_request(config: dict[str, Any]) -> int | None:
    """Bytes of convolution and recurrent state that one running request holds. 0 for a model without linear layers."""
    text = text_config(config)
    kinds = layer_kinds(config)
    if kinds is None:
        return None
    if kinds["linear"] == 0:
        return 0
    recurrent = DTYPE_BYTES.get(str(text.get("mamba_ssm_dtype") or "float32"), 4)
    delta = [
        number(text, f"linear_{name}")
        for name in ("num_value_heads", "value_head_dim", "num_key_heads", "key_head_dim", "conv_kernel_dim")
    ]
    mamba = [
        number(text, "mamba_num_heads", "mamba_n_heads"),
        number(text, "mamba_head_dim", "mamba_d_head"),
        number(text, "n_groups", "mamba_n_groups"),
        number(text, "ssm_state_size", "mamba_d_state"),
        number(text, "conv_kernel", "mamba_d_conv"),
    ]
    for heads, head, groups, state, kernel in (delta, mamba):
        if heads and head and groups and state and kernel:
            convolution = (kernel - 1) * (heads * head + 2 * groups * state)
            return kinds["linear"] * (convolution * CONV_BYTES + heads * head * state * recurrent)
    return None


def max_context(config: dict[str, Any]) -> int | None:
    """As SGLang derives it: the trained length, times the rope factor where that is not already in it."""
    text = text_config(config)
    factor: float = 1
    scaling = text.get("rope_scaling")
    if isinstance(scaling, dict) and "original_max_position_embeddings" not in scaling:
        given = scaling.get("factor", 1)
        if scaling.get("rope_type") != "llama3" and isinstance(given, (int, float)) and 0 < given < 10_000:
            factor = given
    length = number(
        text, "max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings"
    )
    return None if length is None else int(factor * length)


def has_vision(config: dict[str, Any]) -> bool:
    if config.get("language_model_only") is True:
        return False
    return any(isinstance(part.get("vision_config"), dict) for part in (config, _mapping(config.get("thinker_config"))))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def mtp_layers(config: dict[str, Any]) -> int:
    """Layers for multi-token prediction that the config announces."""
    text = text_config(config)
    names = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules", "mtp_num_layers")
    return number(text, *names) or number(config, *names) or 0


def is_mtp_tensor(name: str, layers: int | None) -> bool:
    """By name (`mtp.`, `nextn`), or as DeepSeek stores them: a layer numbered behind the last one."""
    parts = name.split(".")
    if any(part in ("mtp", "mtp_layers", "nextn", "nextn_layers") for part in parts):
        return True
    for before, part in zip(parts, parts[1:]):
        if before == "layers" and part.isascii() and part.isdigit() and len(part) < 8:
            return layers is not None and layers > 0 and int(part) >= layers and "model" in parts[0:1]
    return False
