"""Where a family's files have a tensor: its name, and the part of a stored tensor that it is.

The keys of a table are the names of layers.py without the layer; what a table does not have is stored under its own
name. `{expert}` is an expert's number.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from runtimes.llm.model.model_config import LayerKind, UnsupportedModel

if TYPE_CHECKING:  # the tables are read without torch too
    from torch import Tensor

    from runtimes.llm.model.matrix import Weight

Part = Literal["whole", "query", "key", "value", "first", "second", "even", "odd", "words"]
"""Some rows: queries, keys or values, a half, every other one, or those of the vocabulary."""


class Heads(Protocol):
    """The part of a shape that tells queries, keys and values apart, and a matrix from its transpose."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor of a file: its name, and the part that is wanted. `stacked` tensors [experts, …] hold those of all
    experts, `transposed` matrices are [in, out]. With `either`, only those are that do not fit the hidden size."""

    name: str
    part: Part = "whole"
    stacked: bool = False
    transposed: bool = False
    either: bool = False
    expert: int = -1

    def of(self, whole: "Weight", shape: Heads) -> "Weight":
        """The part of the `whole` stored tensor, or of the expert's own if it is stacked. A view where it can be."""
        import torch

        from runtimes.llm.model.matrix import GroupQuantized, with_rows

        if isinstance(whole, torch.Tensor) and whole.dim() > 1 and self._lies(whole, shape):
            whole = whole.t()
        rows = rows_of_part(self.part, whole.shape[0], shape)
        if rows == slice(None):
            return whole
        return (
            with_rows(whole, torch.arange(whole.shape[0])[rows]) if isinstance(whole, GroupQuantized) else whole[rows]
        )

    def _lies(self, whole: "Tensor", shape: Heads) -> bool:
        """Whether the matrix is [in, out]. Quantized ones never are."""
        if not self.either:
            return self.transposed
        if whole.shape[0] == whole.shape[1]:
            raise UnsupportedModel(f"tensor {self.name} is a square, which may be [in, out] or [out, in]")
        return bool(whole.shape[0 if self.part == "whole" else 1] != shape.hidden_size)


def rows_of_part(part: Part, count: int, shape: Heads) -> slice:
    """The rows of a tensor of `count` that are the part."""
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    match part:
        case "words":
            return slice(0, shape.vocab_size)
        case "query":
            return slice(0, queries)
        case "key":
            return slice(queries, queries + keys)
        case "value":
            return slice(queries + keys, None)
        case "first":
            return slice(0, count // 2)
        case "second":
            return slice(count // 2, None)
        case "even" | "odd":
            return slice(int(part == "odd"), None, 2)
        case _:
            return slice(None)


Names = Mapping[str, str | TensorPart]
_EXPERT = re.compile(r"(?<=\.experts\.)\d+(?=\.)")
_ENDS = (".weight", ".bias")
# TensorPart so by several families; the names of the parts come first.
_FUSED: Mapping[str, TensorPart] = {
    "self_attn.q_proj": TensorPart("self_attn.qkv_proj", "query"),
    "self_attn.k_proj": TensorPart("self_attn.qkv_proj", "key"),
    "self_attn.v_proj": TensorPart("self_attn.qkv_proj", "value"),
    "mlp.gate_proj": TensorPart("mlp.gate_up_proj", "first"),
    "mlp.up_proj": TensorPart("mlp.gate_up_proj", "second"),
}


def stored_as(names: Names, name: str, there: Callable[[str], bool], layers: str = "model.layers") -> TensorPart:
    """The place of the tensor `name` in files of which `there` tells whether they have a tensor. If they have it
    nowhere, its likeliest name. `layers` is what the files call all layers together."""
    end = next((end for end in _ENDS if name.endswith(end)), "")
    module = name.removesuffix(end)
    layer, prefix = module, ""
    if module.startswith("model.layers."):
        _, _, index, layer = module.split(".", 3)
        prefix = f"{layers}.{index}."
    number = _EXPERT.search(layer)
    layer = _EXPERT.sub("{expert}", layer)
    listed = names.get(layer + end, names.get(layer, layer))
    choices = [listed if isinstance(listed, TensorPart) else TensorPart(listed)]
    if layer in _FUSED:
        choices.append(_FUSED[layer])
    places = [
        replace(choice, name=stored, expert=-1 if number is None else int(number[0]))
        for choice in choices
        for stored in _spelled(prefix, choice, end, layer + end in names, number)
    ]
    return next((choice for choice in places if there(choice.name)), places[0])


def numbered(name: str, layers: Sequence[int]) -> str:
    """`name` with the number that files give its layer, which is its own where `layers` is empty."""
    if not layers or not name.startswith("model.layers."):
        return name
    _, _, index, layer = name.split(".", 3)
    return f"model.layers.{layers[int(index)]}.{layer}"


def _spelled(prefix: str, choice: TensorPart, end: str, whole: bool, number: re.Match[str] | None) -> list[str]:
    """The names that a tensor may have: a model with other parts, or saved without its head, has longer or shorter
    ones. `whole` names have their end already."""
    own = choice.name if number is None else choice.name.replace("{expert}", number[0])
    name = prefix + own + ("" if whole else end)
    bare = name.removeprefix("model.")
    return [
        name, f"language_model.{name}", f"model.language_model.{bare}", f"model.text_model.{bare}", bare,
        f"language_model.{bare}", f"backbone.{bare}",
        f"transformer.{bare.replace('layers.', 'h.', 1)}", bare.replace("layers.", "h.", 1),
    ]  # fmt: skip


def neighbours_apart(weight: "Weight", heads: int, kind: LayerKind, head_dim: int) -> "Weight":
    """Rows of queries or keys, of which neighbours turn together (2i, 2i + 1), in the order of this engine, where
    i turns with i + half. Both products of a score are in the same order, so no score changes."""
    import torch

    from runtimes.llm.model.matrix import with_rows

    if weight.shape[0] != heads * head_dim:
        raise UnsupportedModel(f"a matrix of {weight.shape[0]} rows cannot be that of {heads} heads of {head_dim}")
    if kind.rope is None:
        return weight
    turned = 2 * len(kind.rope.frequencies)
    order = torch.arange(weight.shape[0]).view(heads, head_dim)
    order[:, :turned] = order[:, :turned].reshape(heads, -1, 2).transpose(1, 2).flatten(1)
    return with_rows(weight, order.flatten())


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────

OWN: Names = {}
LLAMA: Names = {"pre_feedforward_layernorm": "post_attention_layernorm"}
_SHARED = {f"mlp.shared_expert.{part}": f"mlp.shared_experts.{part}" for part in ("gate_proj", "up_proj", "down_proj")}
_SELECTION = "mlp.router.selection_bias"
QWEN_MOE: Names = {**LLAMA, "mlp.router": "mlp.gate"}
_STACKED_PARTS: tuple[tuple[str, str, Part], ...] = (
    ("gate_proj", "gate_up_proj", "first"),
    ("up_proj", "gate_up_proj", "second"),
    ("down_proj", "down_proj", "whole"),
)


def _stacked_experts(module: str) -> dict[str, TensorPart]:
    """All experts of a layer in two tensors without an end, gates above ups. Published files have them [experts, in,
    out], and those of newer versions of transformers [experts, out, in]."""
    return {
        f"mlp.experts.{{expert}}.{own}.weight": TensorPart(f"{module}.{stored}", part, stacked=True, either=True)
        for own, stored, part in _STACKED_PARTS
    }


QWEN_VL_MOE: Names = {**QWEN_MOE, **_stacked_experts("mlp.experts")}
GEMMA4: Names = {
    **_stacked_experts("experts"),
    "mlp.router": "router.proj",
    **{f"mlp.shared_expert.{part}_proj": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}
LLAMA4: Names = {
    **LLAMA,
    **_stacked_experts("feed_forward.experts"),
    "mlp.router": "feed_forward.router",
    **{
        f"mlp.{module}{part}_proj": f"feed_forward.{module}{part}_proj"
        for module in ("", "shared_expert.")
        for part in ("gate", "up", "down")
    },
}
MISTRAL4: Names = {
    **QWEN_MOE,
    **_stacked_experts("mlp.experts"),
    **_SHARED,
}
MLLAMA: Names = {**LLAMA, "model.embed_tokens": TensorPart("model.embed_tokens", "words")}
QWEN_NEXT: Names = {**QWEN_MOE, "linear_attn.scale_of_values": "linear_attn.norm"}
DEEPSEEK_MOE: Names = {**QWEN_MOE, **_SHARED, _SELECTION: "mlp.gate.e_score_correction_bias"}
ERNIE_MOE: Names = {**DEEPSEEK_MOE, _SELECTION: "mlp.moe_statics.e_score_correction_bias"}
MIXTRAL: Names = {
    **LLAMA,
    "mlp.router": "block_sparse_moe.gate",
    _SELECTION: "block_sparse_moe.e_score_correction_bias",
    "mlp.experts.{expert}.gate_proj": "block_sparse_moe.experts.{expert}.w1",
    "mlp.experts.{expert}.up_proj": "block_sparse_moe.experts.{expert}.w3",
    "mlp.experts.{expert}.down_proj": "block_sparse_moe.experts.{expert}.w2",
}
GRANITE_MOE: Names = {
    **LLAMA,
    "mlp.router": "block_sparse_moe.router.layer",
    "mlp.experts.{expert}.gate_proj": TensorPart("block_sparse_moe.input_linear", "first", stacked=True),
    "mlp.experts.{expert}.up_proj": TensorPart("block_sparse_moe.input_linear", "second", stacked=True),
    "mlp.experts.{expert}.down_proj": TensorPart("block_sparse_moe.output_linear", stacked=True),
    "mlp.shared_expert.gate_proj": TensorPart("shared_mlp.input_linear", "first"),
    "mlp.shared_expert.up_proj": TensorPart("shared_mlp.input_linear", "second"),
    "mlp.shared_expert.down_proj": "shared_mlp.output_linear",
}
# Models without experts have the shared MLP alone.
GRANITE_HYBRID: Names = {
    **GRANITE_MOE,
    "mlp.gate_proj": TensorPart("shared_mlp.input_linear", "first"),
    "mlp.up_proj": TensorPart("shared_mlp.input_linear", "second"),
    "mlp.down_proj": "shared_mlp.output_linear",
}
_PARTS: tuple[tuple[str, str, Part], ...] = (
    ("gate_proj", "gate_up_proj", "even"),
    ("up_proj", "gate_up_proj", "odd"),
    ("down_proj", "down_proj", "whole"),
)
_GPT_OSS_EXPERTS = {
    f"mlp.experts.{{expert}}.{own}{end}": TensorPart(
        f"mlp.experts.{stored}{'_bias' * (end == '.bias')}", part, stacked=True, transposed=end == ".weight"
    )
    for own, stored, part in _PARTS
    for end in _ENDS
}
GPT_OSS: Names = {**LLAMA, **_GPT_OSS_EXPERTS}
GLM4: Names = {
    **LLAMA,
    "post_attention_layernorm": "post_self_attn_layernorm",
    "post_feedforward_layernorm": "post_mlp_layernorm",
}
APERTUS: Names = {"input_layernorm": "attention_layernorm", "pre_feedforward_layernorm": "feedforward_layernorm"}
HUNYUAN: Names = {
    **LLAMA, "self_attn.q_norm": "self_attn.query_layernorm", "self_attn.k_norm": "self_attn.key_layernorm",
}  # fmt: skip
PHI: Names = {
    "model.norm": "model.final_layernorm",
    "self_attn.o_proj": "self_attn.dense",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
}
# As Microsoft published it, beside matrices for pictures and for sounds.
PHI4MM: Names = {
    **LLAMA,
    **{name: replace(part, name=f"{part.name}.base_layer") for name, part in _FUSED.items()},
    "self_attn.o_proj": "self_attn.o_proj.base_layer",
    "mlp.down_proj": "mlp.down_proj.base_layer",
}
STARCODER2: Names = {**LLAMA, "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}
GPT2: Names = {
    "model.embed_tokens": "wte",
    "model.embed_positions": "wpe",
    "model.norm": "ln_f",
    "input_layernorm": "ln_1",
    "pre_feedforward_layernorm": "ln_2",
    "self_attn.q_proj": TensorPart("attn.c_attn", "query", transposed=True),
    "self_attn.k_proj": TensorPart("attn.c_attn", "key", transposed=True),
    "self_attn.v_proj": TensorPart("attn.c_attn", "value", transposed=True),
    "self_attn.o_proj": TensorPart("attn.c_proj", transposed=True),
    "mlp.up_proj": TensorPart("mlp.c_fc", transposed=True),
    "mlp.down_proj": TensorPart("mlp.c_proj", transposed=True),
}
FALCON_H1: Names = {
    "model.norm": "model.final_layernorm",
    "pre_feedforward_layernorm": "pre_ff_layernorm",
    "mlp.gate_proj": "feed_forward.gate_proj",
    "mlp.up_proj": "feed_forward.up_proj",
    "mlp.down_proj": "feed_forward.down_proj",
}
NEMOTRON_H: Names = {
    "model.embed_tokens": "model.embeddings",
    "model.norm": "model.norm_f",
    "input_layernorm": "norm",
    "pre_feedforward_layernorm": "norm",
    **{f"self_attn.{one}_proj": f"mixer.{one}_proj" for one in "qkvo"},
    **{f"mamba.{one}": f"mixer.{one}" for one in ("in_proj", "conv1d", "dt_bias", "A_log", "D", "norm", "out_proj")},
    "mlp.router": "mixer.gate",
    _SELECTION: "mixer.gate.e_score_correction_bias",
    "mlp.experts_into": "mixer.fc1_latent_proj",
    "mlp.experts_out": "mixer.fc2_latent_proj",
    **{
        f"mlp.{ours}{one}_proj": f"mixer.{theirs}{one}_proj"
        for ours, theirs in (
            ("", ""),
            ("experts.{expert}.", "experts.{expert}."),
            ("shared_expert.", "shared_experts."),
        )
        for one in ("up", "down")
    },
}
LFM2: Names = {
    "model.norm": "model.embedding_norm",
    "input_layernorm": "operator_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}
