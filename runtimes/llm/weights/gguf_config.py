"""The shape of a model from the fields of its GGUF file.

A file's fields are those of config.json under other names: a row here is a row of model/families.py, and what differs.
Values that a file omits are the defaults of llama.cpp's own code for the architecture
(https://github.com/ggml-org/llama.cpp/tree/master/src/models).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtimes.llm.model.families import FAMILIES
from runtimes.llm.model.family import Family
from runtimes.llm.model.hugging_face import activation_of
from runtimes.llm.model.model_config import MAX_LAYERS, LayerKind, ModelShape, Rope, UnsupportedModel, checked_count
from runtimes.llm.model.rope import divided, rope_of
from runtimes.llm.weights.gguf_encoder import ENCODER_ARCHITECTURES
from runtimes.llm.weights.gguf_hybrid import FIELDS, Tensors, deepseek_family, is_by_key_head


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """`family` is the row of config.json's, `defaults` are its fields for what a file omits. Files have rows of
    neighbours that turn together, (2i, 2i + 1), if `neighbours`. Only `windowed` families have windows in llama.cpp.
    Fields of `mixed` ones have a number for each layer, which is 0 where a layer has no such part."""

    family: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    neighbours: bool = False
    windowed: bool = False
    mixed: bool = False


ARCHITECTURES: Mapping[str, GgufFamily] = {
    "llama": GgufFamily("llama", neighbours=True),
    "qwen2": GgufFamily("qwen2"),
    "qwen2vl": GgufFamily("qwen2"),
    "qwen2moe": GgufFamily("qwen2_moe"),
    "qwen3": GgufFamily("qwen3"),
    "qwen3vl": GgufFamily("qwen3"),
    "qwen3moe": GgufFamily("qwen3_moe", {"norm_topk_prob": True}),
    "qwen3vlmoe": GgufFamily("qwen3_moe", {"norm_topk_prob": True}),
    "gemma": GgufFamily("gemma"),
    "gemma2": GgufFamily("gemma2", {"sliding_window": 4096}, windowed=True),
    "gemma3": GgufFamily("gemma3_text", windowed=True),
    "phi2": GgufFamily("phi"),
    "phi3": GgufFamily("phi3", windowed=True),
    "phimoe": GgufFamily("phimoe"),
    "granite": GgufFamily("granite", neighbours=True),
    "granitemoe": GgufFamily("granitemoe", neighbours=True),
    "olmo2": GgufFamily("olmo3", windowed=True),
    "olmoe": GgufFamily("olmoe"),
    "smollm3": GgufFamily("smollm3", neighbours=True),
    "glm4": GgufFamily("glm4", neighbours=True),
    "glm4moe": GgufFamily("glm4_moe", {"norm_topk_prob": False}),
    "dots1": GgufFamily("dots1"),
    "minimax-m2": GgufFamily("minimax_m2"),
    "command-r": GgufFamily("cohere", neighbours=True),
    "cohere2": GgufFamily("cohere2", neighbours=True, windowed=True),
    "starcoder2": GgufFamily("starcoder2"),
    "seed_oss": GgufFamily("seed_oss"),
    "hunyuan-dense": GgufFamily("hunyuan_v1_dense"),
    "ernie4_5": GgufFamily("ernie4_5", neighbours=True),
    "ernie4_5-moe": GgufFamily("ernie4_5_moe", neighbours=True),
    "exaone4": GgufFamily("exaone4", windowed=True),
    "apertus": GgufFamily("apertus"),
    "arcee": GgufFamily("arcee", neighbours=True),
    "gpt2": GgufFamily("gpt2"),
    "lfm2": GgufFamily("lfm2", {"block_auto_adjust_ff_dim": False}, mixed=True),
    "gpt-oss": GgufFamily("gpt_oss", windowed=True),
    "granitehybrid": GgufFamily("granitemoehybrid", neighbours=True, mixed=True),
    "falcon-h1": GgufFamily("falcon_h1"),
    "nemotron_h": GgufFamily("nemotron_h", mixed=True),
    "nemotron_h_moe": GgufFamily("nemotron_h", mixed=True),
    "qwen3next": GgufFamily("qwen3_next", mixed=True),
    "qwen35": GgufFamily("qwen3_5_text", mixed=True),
    "qwen35moe": GgufFamily("qwen3_5_moe_text", mixed=True),
    "deepseek2": GgufFamily("deepseek_v2"),
}
_SUPPORTED = sorted({*ARCHITECTURES, *ENCODER_ARCHITECTURES})
# The fields of an architecture, by what config.json calls them.
_FIELDS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "logit_scale": "logit_scale",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "moe_num_shared_experts": "expert_shared_count",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "moe_layer_start_index": "leading_dense_block_count",
    "moe_layer_interval": "interleave_moe_layer_step",
    "conv_L_cache": "shortconv.l_cache",
}
_KEY_HEADS = "attention.head_count_kv"
# Gemma's largest models scale their scores by the width of a head that they do not have; by number of layers.
_ODD_SCALE = {("gemma2", 46), ("gemma3", 62)}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF file's description of its model: `field(key, default)` and tensors."""

    field: Callable[..., Any]
    tensors: Tensors

    @property
    def architecture(self) -> str:
        name: str = self.field("general.architecture", "none")
        if name not in ARCHITECTURES:
            raise UnsupportedModel(
                f"architecture {name!r} is not supported; these are: {', '.join(_SUPPORTED)}. llama.cpp's"
                " server may support it, behind a pool of `kind: openai`"
            )
        return name

    @property
    def row(self) -> GgufFamily:
        return ARCHITECTURES[self.architecture]

    @property
    def layers(self) -> int:
        """Without those that only predict more tokens."""
        count = checked_count("block_count", self.own("block_count"), MAX_LAYERS)
        return count - int(self.own("nextn_predict_layers", 0))

    def own(self, key: str, *default: Any) -> Any:
        """The architecture's `key`, which must be there if there is no default."""
        value = self.field(f"{self.architecture}.{key}", *default)
        if isinstance(value, list):
            if self.row.mixed:
                value = [heads for heads in value if heads] or value
            if len(set(value)) != 1:
                raise UnsupportedModel(f"{self.architecture}.{key} differs between layers, which is not supported")
            return value[0]
        return value

    @property
    def layer_types(self) -> list[str] | None:
        """Of LFM2, whose convolutions have no key heads."""
        heads = self.field(f"{self.architecture}.{_KEY_HEADS}", None)
        if self.row.family != "lfm2" or not isinstance(heads, list):
            return None
        return ["full_attention" if count else "conv" for count in heads]


def gguf_config(model: GgufModel) -> ModelShape:
    """Raises UnsupportedModel, which names the missing or unsupported part."""
    tensors = model.tensors
    heads, hidden = model.own("attention.head_count"), model.own("embedding_length")
    head_dim = model.own("attention.key_length", hidden // heads)
    if model.own("attention.value_length", head_dim) != head_dim and model.architecture != "deepseek2":
        raise UnsupportedModel("values of another size than keys are not supported")
    family, raw = _as_config_json(model, head_dim)
    kinds = _layer_kinds(model, family, raw, head_dim)
    distinct = tuple(dict.fromkeys(kinds))
    vocabulary = tensors.shape("token_embd.weight")[0]
    ends = [model.field(f"tokenizer.ggml.{end}_token_id", None) for end in ("eos", "eot", "eom")]
    described: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": model.own("feed_forward_length"),
        "num_layers": model.layers,
        "num_heads": heads,
        "num_kv_heads": raw["num_key_value_heads"],
        "head_dim": head_dim,
        "context_length": _context_length(model),
        "rms_norm_eps": _eps(model),
        "kinds": distinct,
        "layer_kinds": tuple(distinct.index(kind) for kind in kinds),
        "attention_scale": head_dim**-0.5,
        "tie_word_embeddings": "output.weight" not in tensors,
        "eos_token_ids": frozenset(end for end in ends if end is not None and 0 <= end < vocabulary),
        "activation": activation_of(raw),
    }
    features = family.features(raw)
    if model.architecture == "qwen3next" and features["recurrent"] is not None:
        features["recurrent"] = replace(features["recurrent"], by_key_head=is_by_key_head(tensors, model.layers))
    elsewhere = features.get("conv_layers", frozenset()) | features.get("unattended", frozenset())
    attending = f"blk.{next((i for i in range(model.layers) if i not in elsewhere), 0)}"
    if f"{attending}.attn_q_norm.weight" not in tensors:
        features["qk_norm"] = None
    elif features.get("qk_norm") is None:
        raise UnsupportedModel(f"norms of queries and keys are not supported for {model.architecture}")
    stored = {
        "qkv_bias": f"{attending}.attn_q.bias" in tensors or f"{attending}.attn_qkv.bias" in tensors,
        "attention_out_bias": f"{attending}.attn_output.bias" in tensors,
        "mlp_bias": any(f"blk.{index}.ffn_down.bias" in tensors for index in range(model.layers)),
        "head_bias": "output.bias" in tensors,
    }
    return ModelShape(**described | features | stored)


def _as_config_json(model: GgufModel, head_dim: int) -> tuple[Family, dict[str, Any]]:
    """The family, and what its features read of config.json."""
    name, row, layers = model.row.family, model.row, model.layers
    experts = model.own("expert_count", 0)
    if model.architecture == "llama" and experts:
        name = "mixtral"
    if model.architecture == "deepseek2":
        name = deepseek_family(model)
    family = FAMILIES[name]
    raw = {own: value for own, key in _FIELDS.items() if (value := model.own(key, None)) is not None}
    if not experts:
        raw.pop("num_experts", None)
    window = _window(model) if row.windowed else None
    odd = (model.architecture, layers) in _ODD_SCALE
    raw |= {
        "model_type": name,
        "num_hidden_layers": layers,
        "head_dim": head_dim,
        "query_pre_attn_scalar": raw["hidden_size"] // raw["num_attention_heads"] if odd else head_dim,
        "sliding_window": window,
        "use_qk_norm": name == "glm4_moe" and "blk.0.attn_q_norm.weight" in model.tensors,
    }
    if (types := model.layer_types) is not None:
        raw["layer_types"] = types
    raw.setdefault("num_key_value_heads", raw["num_attention_heads"])
    raw |= FIELDS.get(model.architecture, _no_fields)(model)
    return family, {**family.defaults, **row.defaults, **raw}


def _no_fields(model: object) -> dict[str, Any]:
    return {}


def _eps(model: GgufModel) -> float:
    for norm in ("rms_", ""):
        if (eps := model.own(f"attention.layer_norm_{norm}epsilon", None)) is not None:
            return float(eps)
    raise UnsupportedModel(f"the GGUF file lacks {model.architecture}.attention.layer_norm_rms_epsilon")


# ── attention: windows and positions ──────────────────────────────────────────────────────────────────


def _layer_kinds(model: GgufModel, family: Family, raw: Mapping[str, Any], head_dim: int) -> list[LayerKind]:
    window: int | None = raw["sliding_window"]
    sliding = [window is not None and slides for slides in _sliding_layers(model, family, raw)]
    if window is not None and window >= _context_length(model):
        window = None
    rope, turns = _rope(model, head_dim), [family.turns(raw, layer, sliding[layer]) for layer in range(model.layers)]
    local = rope
    if family.local_rope:
        theta = model.own("rope.freq_base_swa", 10_000.0 if family.norms_are_offsets else model.own("rope.freq_base"))
        local = rope_of({"rope_theta": theta}, head_dim, _context_length(model))
    return [
        LayerKind((local if slides else rope) if turn else None, window if slides else None)
        for slides, turn in zip(sliding, turns, strict=True)
    ]


def _sliding_layers(model: GgufModel, family: Family, raw: Mapping[str, Any]) -> list[bool]:
    """Whether each layer uses the window."""
    layers = range(model.layers)
    pattern = model.field(f"{model.architecture}.attention.sliding_window_pattern", None)
    if isinstance(pattern, list):
        if len(pattern) < len(layers):
            raise UnsupportedModel(f"sliding_window_pattern is of {len(pattern)} layers; block_count is {len(layers)}")
        return [bool(sliding) for sliding in pattern[: len(layers)]]
    if pattern:
        return [bool((layer + 1) % pattern) for layer in layers]
    return [family.slides(raw, layer) for layer in layers]


def _window(model: GgufModel) -> int | None:
    window: int = model.own("attention.sliding_window", model.row.defaults.get("sliding_window", 0))
    return window if window > 0 else None


def _context_length(model: GgufModel) -> int:
    length: int = model.own("context_length")
    if model.own("rope.scaling.type", "none") != "yarn":
        return length
    original = model.own("rope.scaling.original_context_length", length)
    return max(length, int(original * model.own("rope.scaling.factor", 1.0)))


def _rope(model: GgufModel, head_dim: int) -> Rope:
    length, dims = model.own("context_length"), model.own("rope.dimension_count", head_dim)
    original = model.own("rope.scaling.original_context_length", length)
    factor = model.own("rope.scaling.factor", model.own("rope.scale_linear", 0.0))
    kind = model.own("rope.scaling.type", "linear" if factor else "none")
    if "rope_factors_long.weight" in model.tensors:
        kind = "longrope"
    parameters = {
        "rope_type": "default" if kind == "none" else kind,
        "rope_theta": model.own("rope.freq_base", 10_000.0),
        "factor": factor or 1.0,
        "original_max_position_embeddings": original,
    }
    if kind == "yarn":
        parameters |= _yarn(model, factor)
    if kind == "longrope":
        parameters |= {
            f"{name}_factor": model.tensors.tensor(f"rope_factors_{name}.weight").tolist() for name in ("long", "short")
        }
        parameters["attention_factor"] = model.own("rope.scaling.attn_factor", 1.0)
    rope = rope_of(parameters, dims, length)
    if "rope_freqs.weight" in model.tensors:  # llama3 scaling is stored as its outcome
        rope = divided(rope, model.tensors.tensor("rope_freqs.weight"))
    return rope


def _yarn(model: GgufModel, factor: float) -> dict[str, Any]:
    magnitude = model.own("rope.scaling.attn_factor", 1.0) * model.own("rope.scaling.yarn_attn_factor", 1.0)
    strength = 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
    if model.own("rope.scaling.yarn_log_multiplier", 0.0):
        if model.architecture != "deepseek2":
            raise UnsupportedModel("rope.scaling.yarn_log_multiplier is not supported")
        strength = 1.0  # it is that of the scores
    return {
        "attention_factor": magnitude * strength,
        "beta_fast": model.own("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": model.own("rope.scaling.yarn_beta_slow", 1.0),
        # No file has this field: it is the family's own.
        "truncate": FAMILIES[model.row.family].defaults.get("rope_parameters", {}).get("truncate", True),
    }
