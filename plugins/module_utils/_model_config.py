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

import re
from typing import Any

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "half": 2, "float": 4}
_MTP_PART = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:_layers)?(?:\.|$)")
_LAYER = re.compile(r"(?:language_model\.)?model\.(?:language_model\.)?layers\.([0-9]{1,7})(?:\.|$)")
CONV_BYTES = 2
MAX_LAYERS = 100_000

FULL = ("full_attention", "attention", "full", "global_attention", "hybrid")
SLIDING = ("sliding_attention", "chunked_attention", "local_attention", "sliding")
# A hybrid layer (Zamba2) has both.
LINEAR = ("linear_attention", "mamba", "mamba2", "linear", "recurrent", "conv", "short_conv", "lightning_attention", "hybrid")


# What config.json leaves to the model's class (transformers, configuration_gemma2.py and configuration_gemma3.py): the
# published files of these families omit what equals the default.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window_pattern": 2},
    "gemma3_text": {
        "sliding_window_pattern": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072,
    },
}  # fmt: skip
# Layouts whose cache is not one row of heads a layer. Nothing is said of them rather than something wrong:
# layers that differ (DeciLM's block_configs), compressed keys (DeepSeek-V4), layers that share another's (Gemma 3n and 4, GLM-5.2).
UNKNOWN_CACHE = ("block_configs", "compress_ratios", "num_kv_shared_layers", "per_layer_config", "indexer_types")
# max_position_embeddings of these counts the rope factor already, though nothing in the section says so.
SCALED_ALREADY = ("gemma3_text",)


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part, with its class's defaults: multimodal configs nest it, some of them twice (thinker)."""
    text = _nested_text_config(config)
    kind = text.get("model_type")
    defaults = CLASS_DEFAULTS.get(kind) if isinstance(kind, str) else None
    return {**defaults, **text} if defaults else text


def _nested_text_config(config: dict[str, Any]) -> dict[str, Any]:
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


def architectures(config: dict[str, Any]) -> list[str]:
    names = config.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


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
    section = _quantization_section(config, modelopt)
    if not section:
        return None
    algorithm = section.get("quant_algo")
    if isinstance(algorithm, str):
        return algorithm.lower()
    method = section.get("quant_method")
    method = method.lower() if isinstance(method, str) else None
    if method is None and "quant_algo" in section:
        # ModelOpt's section of an export whose cache alone is quantized
        return None
    if method == "compressed-tensors":
        return _compressed_tensors(section)
    return method or "unknown"


def packed_bits(config: dict[str, Any], modelopt: dict[str, Any] | None = None) -> int:
    """Bits of a weight that lies packed in 32-bit words. 4 unless the config says otherwise: what AWQ and GPTQ have in common."""
    section = _quantization_section(config, modelopt)
    given = {number(section, "bits", "w_bit"), *(number(entry, "num_bits") for entry in _weight_groups(section))} - {None}
    bits = given.pop() if len(given) == 1 else None
    return bits if bits and bits <= 16 else 4


def _quantization_section(config: dict[str, Any], modelopt: dict[str, Any] | None) -> dict[str, Any]:
    for section in (config.get("quantization_config"), text_config(config).get("quantization_config"), config.get("compression_config"),
                    (modelopt or {}).get("quantization")):  # fmt: skip
        if isinstance(section, dict) and section:
            return section
    return {}


def _weight_groups(section: dict[str, Any]) -> list[dict[str, Any]]:
    groups = section.get("config_groups")
    return [
        group["weights"]
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]


def _compressed_tensors(section: dict[str, Any]) -> str:
    kinds = {(str(entry.get("type")), number(entry, "num_bits"), number(entry, "group_size")) for entry in _weight_groups(section)}
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
        # Some list their layers for multi-token prediction too, behind the model's own.
        return _count(names[:layers] if layers else names)
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return {"full": pattern.count("*"), "linear": pattern.count("M"), "sliding": 0}
    if layers is None or layers > MAX_LAYERS:
        return None
    if text.get("model_type") == "falcon_h1":
        # each of its layers has both, side by side
        return {"full": layers, "linear": layers, "sliding": 0}
    marked = text.get("hybrid_layer_pattern")
    if isinstance(marked, list) and len(marked) >= layers:
        sliding = sum(mark == 1 for mark in marked[:layers])
        return {"full": layers - sliding, "linear": 0, "sliding": sliding}
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
    window = number(text, "sliding_window_pattern", "_sliding_window_pattern")
    if window and number(text, "sliding_window"):
        full = layers // window
        return {"full": full, "linear": 0, "sliding": layers - full}
    return {"full": layers, "linear": 0, "sliding": 0}


def _count(names: list[Any]) -> dict[str, int] | None:
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
    if kinds is None or size is None or any(text.get(name) for name in UNKNOWN_CACHE):
        return None
    rank = number(text, "kv_lora_rank")
    if rank:
        row = (rank + (number(text, "qk_rope_head_dim") or 0)) * size + _index_bytes(text)
        return (kinds["full"] + kinds["sliding"]) * row
    base = _row(text)
    # Gemma 4 names its full layers' heads apart, MiMo-V2 its sliding layers'.
    full = _row(text, "num_global_key_value_heads", "global_head_dim", "global_head_dim")
    sliding = _row(text, "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim")
    if base is None or full is None or sliding is None:
        return None
    return (kinds["full"] * full + kinds["sliding"] * sliding) * size


def _index_bytes(text: dict[str, Any]) -> int:
    """Sparse attention (DeepSeek-V3.2) keeps an index key a layer: a byte a value and a 4-byte scale for each 128 of them."""
    values = number(text, "index_head_dim") if number(text, "index_topk") else None
    return values + values // 128 * 4 if values else 0


def _row(text: dict[str, Any], heads_name: str = "", head_name: str = "", value_name: str = "") -> int | None:
    """Values that one layer keeps for one token. Names that the config lacks fall back to those of all layers."""
    heads = number(text, "num_attention_heads", "n_head")
    own = _first(text, heads_name, "num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    kv_heads = heads if own is None else _count_of(own)
    hidden = number(text, "hidden_size", "n_embd")
    given = _first(text, head_name, "head_dim", "attention_head_dim")
    head = (hidden // heads if hidden and heads else None) if given is None else _count_of(given)
    value = _first(text, value_name, "v_head_dim")
    value_head = head if value is None else _count_of(value)
    return kv_heads * (head + value_head) if kv_heads and head and value_head else None


def _first(text: dict[str, Any], *names: str) -> Any:
    return next((text[name] for name in names if text.get(name) is not None), None)


def _count_of(value: Any) -> int | None:
    """A count, or None for what is there and is none (a list with one a layer, a text): that is unknown, not absent."""
    return number({"": value}, "")


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
        number(text, f"linear_{name}") for name in ("num_value_heads", "value_head_dim", "num_key_heads", "key_head_dim", "conv_kernel_dim")
    ]
    mamba = [
        number(text, "mamba_num_heads", "mamba_n_heads"),
        number(text, "mamba_head_dim", "mamba_d_head"),
        number(text, "n_groups", "mamba_n_groups"),
        number(text, "ssm_state_size", "mamba_d_state"),
        number(text, "conv_kernel", "mamba_d_conv"),
    ]
    kimi = _mapping(text.get("linear_attn_config"))
    heads, head = number(kimi, "num_heads"), number(kimi, "head_dim")
    kimi_delta = [heads, head, heads, head, number(kimi, "short_conv_kernel_size")]
    for heads, head, groups, state, kernel in (delta, mamba, kimi_delta):
        if heads and head and groups and state and kernel:
            convolution = (kernel - 1) * (heads * head + 2 * groups * state)
            return kinds["linear"] * (convolution * CONV_BYTES + heads * head * state * recurrent)
    return None


def max_context(config: dict[str, Any]) -> int | None:
    """As SGLang derives it: the trained length, times the rope factor where that is not already in it."""
    text = text_config(config)
    factor: float = 1
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(scaling, dict) and text.get("model_type") not in SCALED_ALREADY and "original_max_position_embeddings" not in scaling:
        given = scaling.get("factor", 1)
        if scaling.get("rope_type") != "llama3" and isinstance(given, (int, float)) and 0 < given < 10_000:
            factor = given
    length = number(text, "max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
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
    """By name (`mtp.`, `nextn`), or as DeepSeek stores them: a layer of the language model numbered behind the last one."""
    # Most names are ruled out by the cheaper look.
    if ("mtp" in name or "nextn" in name) and _MTP_PART.search(name):
        return True
    numbered = _LAYER.match(name) if layers else None
    return numbered is not None and int(numbered[1]) >= (layers or 0)
