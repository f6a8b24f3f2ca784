"""A model as llama.cpp publishes it: one GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_config import GgufModel, gguf_config
from runtimes.llm.weights.gguf_tensors import GgufTensors
from runtimes.llm.weights.matrix import GroupQuantized, Weight, with_rows

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_POST_NORM_NAMES = _NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class GgufCheckpoint:
    """A GGUF file of one of `gguf_config.ARCHITECTURES`. Norm weights are whole in it, for every family."""

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        self._fields = self._tensors.metadata
        model = GgufModel(self._field, self._tensors)
        self._architecture = model.architecture
        self.config = gguf_config(model)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._tensors.shapes

    def tensor(self, name: str) -> Tensor:
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def weight(self, name: str) -> Weight:
        module, _, kind = name.rpartition(".")
        prefix = ""
        if module.startswith("model.layers."):
            _, _, index, module = module.split(".", 3)
            prefix = f"blk.{index}."
        names = _POST_NORM_NAMES if self.config.post_norms else _NAMES
        weight = self._tensors.weight(f"{prefix}{names[module]}.{kind}")
        if self._architecture != "llama":
            return weight
        if module == "self_attn.q_proj":
            return _unpermuted(weight, self.config.num_heads)
        if module == "self_attn.k_proj":
            return _unpermuted(weight, self.config.num_kv_heads)
        return weight

    def _field(self, key: str, *default: Any) -> Any:
        if key in self._fields:
            return self._fields[key]
        if not default:
            raise UnsupportedModel(f"the GGUF file lacks {key}")
        return default[0]


def _unpermuted(weight: Weight, heads: int) -> Weight:
    """Undo llama.cpp's order of a Llama's query and key rows: it turns pairs (2i, 2i + 1), this model (i, i + half)."""
    if weight.shape[0] % (2 * heads):
        raise UnsupportedModel(f"a matrix of {weight.shape[0]} rows cannot be that of {heads} heads")
    order = torch.arange(weight.shape[0]).view(heads, -1, 2).transpose(1, 2).flatten()
    return with_rows(weight, order)
