"""What the device can do, measured, and what this allows a model: bytes ÷ bandwidth, and operations ÷ rate."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from loadtests.gpu.run import Run


@dataclass(frozen=True, slots=True)
class Device:
    """Bytes a second that memory gives, and operations a second of products in bfloat16."""

    bandwidth: float
    rate: float


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def seconds(device: str, compute: Callable[[], object], repeats: int) -> float:
    """The fastest of `repeats`, after one that is not counted."""
    compute()
    fastest = float("inf")
    for _ in range(repeats):
        synchronize(device)
        began = time.perf_counter()
        compute()
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def device_limits(run: Run) -> Device:
    """Measure them: a copy within the memory, and a product of square matrices."""
    size, side = (1 << 24, 256) if run.tiny else (1 << 31, 8192)
    source = torch.empty(size, dtype=torch.uint8, device=run.device)
    target = torch.empty_like(source)
    copied = seconds(run.device, lambda: target.copy_(source), 10)
    one = torch.randn(side, side, dtype=torch.bfloat16, device=run.device)
    multiplied = seconds(run.device, lambda: one @ one, 10)
    measured = Device(2 * size / copied, 2 * side**3 / multiplied)
    run.add("limits", "bandwidth", measured.bandwidth / 1e9, "GB/s")
    run.add("limits", "products in bfloat16", measured.rate / 1e12, "TFLOP/s")
    return measured


@dataclass(frozen=True, slots=True)
class Work:
    """What a token of a model costs. Embeddings are looked up, so they count only where they are the head too."""

    shared: int
    """Weights that every token uses."""
    experts: int
    """Weights of all experts."""
    used: float
    """The share of experts that one token uses."""
    layers: int
    heads: int
    head_dim: int
    kv_values: int
    """Cached numbers of one position, all layers together."""
    width: int
    """Bytes of a number."""

    @classmethod
    def of(cls, model: Any) -> "Work":
        config = model.config
        tied = config.tie_word_embeddings
        counts = {name: value.numel() for name, value in model.named_parameters() if tied or "embed_tokens" not in name}
        experts = sum(count for name, count in counts.items() if ".experts." in name)
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        used = config.num_experts_per_tok / config.num_experts if experts else 0.0
        return cls(
            sum(counts.values()) - experts, experts, used, config.num_hidden_layers, config.num_attention_heads,
            head_dim, 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim,
            next(model.parameters()).element_size(),
        )  # fmt: skip

    @property
    def active(self) -> float:
        """Weights that one token uses."""
        return self.shared + self.experts * self.used

    def decode_seconds(self, device: Device, sequences: int, context: int) -> float:
        """The least time of a step of single tokens. Random tokens choose experts independently."""
        read = 1 - (1 - self.used) ** sequences if self.experts else 0.0
        weights = self.shared + self.experts * read
        moved = self.width * (weights + sequences * context * self.kv_values)
        products = 2 * sequences * (self.active + 2 * self.layers * self.heads * self.head_dim * context)
        return max(moved / device.bandwidth, products / device.rate)

    def prefill_seconds(self, device: Device, tokens: int) -> float:
        """The least time of a prompt. A position attends to half of the others, on average."""
        products = 2 * tokens * (self.active + self.layers * self.heads * self.head_dim * tokens)
        moved = self.width * (self.shared + self.experts)
        return max(products / device.rate, moved / device.bandwidth)
