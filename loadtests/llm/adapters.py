"""Adapters of random numbers for the model of the benchmark, in PEFT's files."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from loadtests.llm.workloads import ADAPTERS, adapter_name
from runtimes.llm.weights.loader import open_checkpoint

RANK = 16


def write_adapters(model: Path, folder: Path) -> dict[str, str]:
    """The folder of each adapter of the workloads, of rank 16 on all matrices of attention. Written once."""
    shape = open_checkpoint(model).adapter_base.config
    heads, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    hidden = shape.hidden_size
    sizes = {"q_proj": (heads, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, heads)}
    folders = {adapter_name(number): folder / str(number) for number in range(ADAPTERS)}
    for number, own in enumerate(folders.values()):
        if own.exists():
            continue
        own.mkdir(parents=True)
        random = torch.Generator().manual_seed(number)
        tensors = {}
        for layer in range(shape.num_layers):
            for target, (out, into) in sizes.items():
                module = f"base_model.model.model.layers.{layer}.self_attn.{target}"
                tensors[f"{module}.lora_A.weight"] = torch.randn(RANK, into, generator=random) / into**0.5
                tensors[f"{module}.lora_B.weight"] = torch.randn(out, RANK, generator=random) / 100
        save_file(tensors, own / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": list(sizes)}
        (own / "adapter_config.json").write_text(json.dumps(config))
    return {name: str(own) for name, own in folders.items()}
