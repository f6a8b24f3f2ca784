"""Tiny models of more than a row: those that also see, and one whose layers differ."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

from tests.runtimes.llm.family_rows import EXPERTS, PLAIN_ROPE, ROWS, SHAPE

_EYE = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 56,
    "patch_size": 14,
}  # fmt: skip
_QWEN_EYE = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
_VISION = {
    "idefics3": _EYE,
    "smolvlm": _EYE,
    "qwen2_5_vl": _QWEN_EYE,
    "qwen3_vl": _QWEN_EYE,
    "qwen3_vl_moe": _QWEN_EYE | {"deepstack_visual_indexes": [0]},
    "qwen3_5": _QWEN_EYE,
    "qwen3_5_moe": _QWEN_EYE,
    "mistral3": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
}


def tiny_with_pictures(family: str) -> Any:
    """A model that also sees, with a very small eye, float32."""
    torch.manual_seed(0)
    text: dict[str, Any] = SHAPE | ({"head_dim": 16} if family != "qwen2_5_vl" else {})
    if family == "mistral3":
        text |= {"model_type": "ministral3", **ROWS["ministral3"]}
    elif family.startswith("qwen3_5"):
        text |= ROWS[f"{family}_text"]
    elif family in ("idefics3", "smolvlm"):
        text |= {"model_type": "llama"}
    else:
        sections = [2, 3, 3]
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
        text |= EXPERTS if family == "qwen3_vl_moe" else {}
    config = AutoConfig.for_model(family, text_config=text, vision_config=_VISION[family])
    return AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()


def tiny_searched() -> tuple[Any, dict[str, Any]]:
    """A Llama whose layers differ, as Nvidia's own code for `nemotron-nas` has them, and its config.json: key heads by
    layer, no attention, one matrix in its place, no MLP, one matrix in its place, and MLPs by layer."""
    blocks: list[dict[str, dict[str, Any]]] = [
        {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 12.5}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        {"attention": {"n_heads_in_group": 1}, "ffn": {"replace_with_linear": True}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ]
    common = SHAPE | {"num_hidden_layers": len(blocks), "rms_norm_eps": 1e-5, "rope_parameters": PLAIN_ROPE}
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(LlamaConfig(**common), attn_implementation="eager")
    for layer, (own, block) in enumerate(zip(model.model.layers, blocks, strict=True)):
        group, factor = block["attention"].get("n_heads_in_group", 4), block["ffn"].get("ffn_mult", 5.25)
        sizes = {"num_key_value_heads": 4 // group, "intermediate_size": 256 if factor < 10 else 768}
        config = LlamaConfig(**(common | sizes))
        config._attn_implementation = "eager"
        own.self_attn, own.mlp = LlamaAttention(config, layer), LlamaMLP(config)
        if "n_heads_in_group" not in block["attention"]:
            own.self_attn = _Straight("linear_attn", block["attention"].get("no_op", False), pair=True)
        if "ffn_mult" not in block["ffn"]:
            own.mlp = _Straight("linear_mlp", block["ffn"].get("no_op", False))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.15) if weight.dim() > 1 else weight.uniform_(0.5, 1.5)
    return model.eval(), common | {"model_type": "nemotron-nas", "block_configs": blocks, "head_dim": 16}


class _Straight(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """One matrix in place of a part of a layer, or nothing."""

    def __init__(self, name: str, nothing: bool, pair: bool = False) -> None:
        super().__init__()
        self._name, self._pair = name, pair
        if not nothing:
            setattr(self, name, torch.nn.Linear(64, 64, bias=False))

    def forward(self, rows: Any = None, **given: Any) -> Any:
        rows = given["hidden_states"] if rows is None else rows
        one = getattr(self, self._name, None)
        answer = torch.zeros_like(rows) if one is None else one(rows)
        return (answer, None) if self._pair else answer
