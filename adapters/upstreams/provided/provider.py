"""The interface of a provider's batches."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from adapters.upstreams.deferral import DeferredRequest, ProvidedResult


class ProviderState(NamedTuple):
    """The state of a batch at its provider."""

    ended: bool
    problem: str = ""
    """The provider's reason for refusing the whole batch; empty for any other end."""
    is_full: bool = False
    """Whether the reason is a limit on enqueued work, so that the same batch may be accepted later."""


class ProviderResult(NamedTuple):
    """One line of the results."""

    custom_id: str
    """Empty for a line that cannot be decoded."""
    result: ProvidedResult | None
    """None for a request that the provider did not run."""


UNREADABLE = ProviderResult("", None)


class ProviderLines(NamedTuple):
    """Requests for one batch. `id` names the submission, and begins each `custom_id`."""

    id: str
    url: str
    lines: Sequence[bytes]
    since: float
    """Unix seconds before which the submission cannot have been created."""


class Unsure(Exception):
    """The provider cannot yet report whether it has accepted a submission."""


class ProviderBatches(Protocol):
    """The batches of one pool's provider. Methods raise `InferenceError`."""

    def line(self, custom_id: str, request: DeferredRequest) -> bytes:
        """One line of a submission."""
        ...

    async def submit(self, lines: ProviderLines) -> str:
        """Create a batch. Returns the provider's id."""
        ...

    async def submitted(self, id_: str, since: float, count: int, others: frozenset[str]) -> str | None:
        """The provider's id of a submission that may have been accepted; None if it was not.

        `count` is its number of lines, `others` are ids of other submissions. Raises `Unsure`.
        """
        ...

    async def state(self, batch: str) -> ProviderState:
        """The state of a batch."""
        ...

    async def cancel(self, batch: str) -> None:
        """Cancel a batch. No error if it has ended."""
        ...

    def results(self, batch: str) -> AsyncIterator[ProviderResult]:
        """The results of a batch that has ended."""
        ...

    async def discard(self, batch: str) -> None:
        """Delete a batch's files at the provider."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
