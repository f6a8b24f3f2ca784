"""The claim of a request on the engine."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Standing:
    """The lowest `priority` runs first, as in vLLM. `share` is the tenant's weight beside other tenants. `deadline` is
    a time of the engine's clock, at which the request is cancelled. Raises ValueError for a share that is not a
    positive number.
    """

    tenant: str = ""
    share: float = 1.0
    priority: int = 0
    deadline: float = inf

    def __post_init__(self) -> None:
        if not 0 < self.share < inf:
            raise ValueError(f"share must be a number above 0, not {self.share}")


DEFAULT_STANDING = Standing()
"""The standing of a request without headers of the gateway."""
