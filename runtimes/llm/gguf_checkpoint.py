"""A model as llama.cpp publishes it: one GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.gguf_tensors import GgufTensors
from runtimes.llm.model_config import ModelConfig, UnsupportedModel
from runtimes.llm.rope import rope_factors
from runtimes.llm.weights import GroupQuantized, Weight, with_rows

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GgufCheckpoint:
    """A GGUF file of architecture "llama" (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        self._fields = self._tensors.metadata
        architecture = self._field("general.architecture", None)
        if architecture != "llama":
            raise UnsupportedModel(f"architecture {architecture!r} is not supported; llama is")
        for option, neutral in (("split.count", 1), ("llama.expert_count", 0)):
            if self._field(option, neutral) not in (0, neutral):
                raise UnsupportedModel(f"{option} = {self._field(option, None)} is not supported")
        self.config = self._config()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._tensors.shapes

    def tensor(self, name: str) -> Tensor:
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def weight(self, name: str) -> Weight:
        module = name.removesuffix(".weight")
        prefix = ""
        if module.startswith("model.layers."):
            _, _, index, module = module.split(".", 3)
            prefix = f"blk.{index}."
        weight = self._tensors.weight(f"{prefix}{_GGUF_NAMES[module]}.weight")
        if module == "self_attn.q_proj":
            return _unpermuted(weight, self.config.num_heads)
        if module == "self_attn.k_proj":
            return _unpermuted(weight, self.config.num_kv_heads)
        return weight

    def _config(self) -> ModelConfig:
        heads = self._field("llama.attention.head_count")
        hidden = self._field("llama.embedding_length")
        head_dim = self._field("llama.attention.key_length", hidden // heads)
        if self._field("llama.rope.dimension_count", head_dim) != head_dim:
            raise UnsupportedModel("rotary positions on a part of each head are not supported")
        ids = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        return ModelConfig(
            vocab_size=self._tensors.shape("token_embd.weight")[0],
            hidden_size=hidden,
            intermediate_size=self._field("llama.feed_forward_length"),
            num_layers=self._field("llama.block_count"),
            num_heads=heads,
            num_kv_heads=self._field("llama.attention.head_count_kv", heads),
            head_dim=head_dim,
            context_length=self._field("llama.context_length"),
            rms_norm_eps=self._field("llama.attention.layer_norm_rms_epsilon"),
            rope_theta=self._field("llama.rope.freq_base", 10000.0),
            rope_factors=self._rope_factors(head_dim),
            tie_word_embeddings="output.weight" not in self._tensors,
            eos_token_ids=frozenset(self._field(key) for key in ids if key in self._fields),
        )

    def _rope_factors(self, head_dim: int) -> tuple[float, ...] | None:
        if "rope_freqs.weight" in self._tensors:  # llama3 scaling is stored as its outcome
            return tuple(self._tensors.tensor("rope_freqs.weight").tolist())
        kind = self._field("llama.rope.scaling.type", "none")
        rope = {"rope_type": "default" if kind == "none" else kind}
        return rope_factors(rope | {"factor": self._field("llama.rope.scaling.factor", 1.0)}, head_dim)

    def _field(self, key: str, *default: Any) -> Any:
        if key in self._fields:
            return self._fields[key]
        if not default:
            raise UnsupportedModel(f"the GGUF file lacks {key}")
        return default[0]


def _unpermuted(weight: Weight, heads: int) -> Weight:
    """Undo llama.cpp's order of query and key rows: it rotates pairs (2i, 2i + 1), this model (i, i + half)."""
    order = torch.arange(weight.shape[0]).view(heads, -1, 2).transpose(1, 2).flatten()
    return with_rows(weight, order)
