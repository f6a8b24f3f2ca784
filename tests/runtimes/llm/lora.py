"""Adapters of PEFT for tiny models, as PEFT writes them, and random ones."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from runtimes.llm.model.lora import LayerAdditions, LowRank, LowRankAdapter
from runtimes.llm.model.model_config import ModelShape
from tests.runtimes.llm import families, family_table

TARGETS: dict[str, Any] = {
    "llama": ["q_proj", "v_proj"],
    "llama-biased": "all-linear",
    "qwen3": r".*\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)",
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gemma": ["k_proj", "up_proj"],
    "gemma2": ["gate_proj", "down_proj", "o_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "glm4": "all-linear",  # neighbours turn together, and gate and up are one matrix
    "cohere": ["q_proj", "k_proj", "up_proj"],
    "phi": ["q_proj", "dense", "fc1", "fc2"],
    "starcoder2": "all-linear",
    "granitemoeshared": ["q_proj", "o_proj"],
}
"""Rows of both tables of families, and modules of their files."""


def tiny(row: str) -> Any:
    """The model of transformers, float32."""
    return families.tiny(row) if row in families.FAMILIES else family_table.tiny(row)


def adapted(model: Any, folder: Path, seed: int = 0, **fields: Any) -> Any:
    """The model with an adapter of random numbers, which is written to `folder`. The model itself is changed."""
    torch.manual_seed(seed)
    transposed = model.config.model_type == "gpt2"
    settings = {"r": 6, "lora_alpha": 9, "init_lora_weights": False, "fan_in_fan_out": transposed, **fields}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads properties of transformers that are deprecated
        wrapped = get_peft_model(model, LoraConfig(**settings)).eval()
        wrapped.save_pretrained(folder)
    return wrapped


def random_adapter(config: ModelShape, rank: int, seed: int = 0, only: Sequence[str] = ()) -> LowRankAdapter:
    """Numbers of bfloat16 for all matrices of a shape, or `only` some. Parts of one matrix have different ranks."""
    random = torch.Generator().manual_seed(seed)

    def part(first: int, out: int, into: int, more: int = 0) -> LowRank:
        down = torch.randn(rank + more, into, generator=random) / into**0.5
        up = torch.randn(out, rank + more, generator=random) / (3 * rank**0.5)
        return LowRank(first, down.bfloat16().float(), up.bfloat16().float())

    hidden, heads, key = config.hidden_size, config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def layer(size: int) -> LayerAdditions:
        gate = [part(0, size, hidden)] if config.gated else []
        mlp: LayerAdditions = {
            "gate_up": [*gate, part(size if config.gated else 0, size, hidden)],
            "down": [part(0, hidden, size)],
        }
        attention: LayerAdditions = {
            "qkv": [part(0, heads, hidden), part(heads, key, hidden, more=1), part(heads + key, key, hidden)],
            "attention_out": [part(0, hidden, heads)],
        }
        return {name: of for name, of in {**attention, **(mlp if size else {})}.items() if not only or name in only}

    layers = [layer(config.mlp_size(index)) for index in range(config.num_layers)]
    return LowRankAdapter(layers, bytes([rank, seed % 256, len(only)]))
