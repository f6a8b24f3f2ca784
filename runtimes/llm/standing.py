"""Whose a request is and how urgent, which decides between those that wait."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Standing:
    """What a request brings to the scheduler beside its prompt.

    `share` is the tenant's weight beside other tenants. The lowest `priority` goes first, as vLLM has it. After
    `deadline`, a time of the engine's clock, nobody wants the answer any more. Raises ValueError for a share that is
    no weight.
    """

    tenant: str = ""
    share: float = 1.0
    priority: int = 0
    deadline: float = inf

    def __post_init__(self) -> None:
        if not 0 < self.share < inf:
            raise ValueError(f"share must be a number above 0, not {self.share}")


NOBODY = Standing()
"""Of a request that says nothing about itself."""
