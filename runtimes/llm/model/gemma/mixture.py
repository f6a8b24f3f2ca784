"""Gemma 4's experts beside an MLP: both read the same hidden state through norms of their own, and what they give is
normed before it is added. The router reads the state with a norm that has no weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from runtimes.llm.model.model_config import ModelShape


@dataclass(frozen=True, slots=True)
class Apart:
    """Norms [hidden], float32: of what the MLP gives, of what experts read, and of what they give."""

    dense: Tensor
    read: Tensor
    given: Tensor


def read_apart(config: "ModelShape", read: Callable[..., Any]) -> Apart:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    names = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
    return Apart(*(read(f"{name}.weight", config.hidden_size) for name in names))


def read_router(config: "ModelShape", count: int, read: Callable[..., Any]) -> tuple[Tensor, Tensor]:
    """The router [count, hidden], with the factors of what it reads, and the factor of each expert [count]."""
    hidden = config.hidden_size
    router = read("mlp.router.weight", count, hidden) * read("router.scale", hidden) * hidden**-0.5
    return router, read("router.per_expert_scale", count)


def judged(hidden: Tensor, eps: float) -> Tensor:
    """What the router reads: [T, hidden], float32."""
    return functional.rms_norm(hidden.float(), hidden.shape[-1:], None, eps)
