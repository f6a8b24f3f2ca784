"""Models by size, as transformers makes them: random weights, written as the folders that people have."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Model = Any
"""A causal language model of transformers, which has no types of its own here."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of transformers: the class of its configuration, and its fields. `tiny` ones replace some of them."""

    name: str
    config: str
    fields: Mapping[str, Any]
    tiny: Mapping[str, Any]

    def configuration(self, *, tiny: bool, **more: Any) -> Any:
        import transformers

        fields = {**self.fields, **(self.tiny if tiny else {}), **more}
        return getattr(transformers, self.config)(bos_token_id=1, eos_token_id=2, pad_token_id=0, **fields)


_SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 2048,
}  # fmt: skip
LLAMA = Shape(
    "Llama 3.1 8B", "LlamaConfig",
    {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 16384, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
    _SMALL,
)  # fmt: skip
QWEN = Shape(
    "Qwen 3 0.6B", "Qwen3Config",
    {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 16384,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    {**_SMALL, "head_dim": 16},
)  # fmt: skip
EXPERTS = Shape(
    "Qwen 3 MoE, a third of 30B", "Qwen3MoeConfig",
    {
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": 151936, "max_position_embeddings": 16384,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    },
    {**_SMALL, "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2},
)  # fmt: skip


def made(configuration: Any, device: str, dtype: torch.dtype) -> Model:
    """A model with random weights. Those of norms are near one, as in a trained model."""
    import transformers

    torch.manual_seed(7)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(configuration)
    finally:
        torch.set_default_dtype(default)
    return model.eval()


def written(model: Model, folder: Path) -> Path:
    """The folder of a model."""
    model.save_pretrained(folder, max_shard_size="4GB")
    return folder
