"""A sequence, the requests in it, and the choice of those that compute together. Pure: time is an argument.

direct   a sequence has its own slot of the batch until it ends; a model may store state by slot
oldest   turns that came first are joined like any other requests, one of each sequence at most
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from math import inf
from typing import NamedTuple

from adapters.errors import CallerError
from adapters.tensors import Inference
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array
from runtimes.tensor.requests.open_request import OpenRequest
from runtimes.tensor.scheduling.latency import LatencyCurve
from runtimes.tensor.scheduling.pending import Pending, PreparedRequest, RequestOwner
from runtimes.tensor.scheduling.responses import Responses

SequenceId = int | str
_LARGEST = 2**64
_NOTHING = Inference("")


class SequencePlace(NamedTuple):
    """The sequence parameters of a request."""

    id: SequenceId
    start: bool
    end: bool


def place_of(inference: Inference) -> SequencePlace:
    """Read the sequence parameters. Raises `CallerError` unless they name a sequence."""
    parameters = inference.parameters
    name = parameters.get("sequence_id", 0)
    if isinstance(name, bool) or not isinstance(name, int | str) or not name:
        raise CallerError(
            f"inference request to model '{inference.model_name}' must specify a non-zero or non-empty correlation ID:"
            " parameter `sequence_id`.",
            param="sequence_id",
        )
    if isinstance(name, int) and not 0 < name < _LARGEST:
        raise CallerError("`sequence_id` must be between 1 and 2^64 - 1.", param="sequence_id")
    return SequencePlace(
        name, bool(parameters.get("sequence_start", False)), bool(parameters.get("sequence_end", False))
    )


class Turn(Pending):
    """One request of a sequence."""

    __slots__ = ("end", "inference", "request", "responses", "sequence", "start", "valid")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: RequestOwner,
        prepared: PreparedRequest,
        arrived: float,
        due: float,
        sequence: RequestSequence,
        place: SequencePlace,
    ) -> None:
        super().__init__(loop, owner, prepared, arrived, due)
        self.sequence = sequence
        self.start = place.start
        self.end = place.end
        self.inference = _NOTHING
        """The request that the client sent."""
        self.responses: Responses | None = None
        """The responses of a decoupled model."""
        self.request: OpenRequest | None = None
        """The turn as a copy executes it, if the model receives requests whole."""
        self.valid = True
        """Whether a client sent it; else it only reports the end of the sequence to the model."""


class RequestSequence:
    """A sequence, open from the arrival of its first request to the end of its last."""

    __slots__ = (
        "after", "closed", "ending", "id", "is_iterative", "nothing", "quiet_since", "running", "started", "states",
        "turns",
    )  # fmt: skip

    def __init__(self, id: SequenceId, after: RequestSequence | None, now: float) -> None:
        self.id = id
        self.after = after
        """The sequence of the same name that must end first."""
        self.turns: deque[Turn] = deque()
        """The waiting requests."""
        self.running = False
        self.started = False
        """Whether the model has computed its start."""
        self.ending = False
        """Whether no request of a caller can follow."""
        self.closed = False
        self.nothing: PreparedRequest | None = None
        """An empty request, for models with an `end` control."""
        self.is_iterative = False
        """Whether it consists of one request, which the model executes several times."""
        self.states: dict[str, Array] = {}
        """States by input, one row each. An absent state has its first value."""
        self.quiet_since = now
        """The time at which its last request ended."""

    def predecessor(self) -> RequestSequence | None:
        """The earlier sequence of the same name that is still open.

        A cancelled request between them does not block, but the request that it waited for does.
        """
        while self.after is not None and self.after.closed:
            self.after = self.after.after
        return self.after


MAX_CANDIDATES = 256
"""Open sequences of one copy, unless the model has a bound."""


class Choice(NamedTuple):
    turns: list[Turn]
    """The chosen turns; empty until `wake_at`."""
    wake_at: float = inf


class Chooser:
    """Selects the requests of the next batch of one model's sequences."""

    def __init__(self, config: ModelConfig, curve: LatencyCurve, key: Callable[[Turn], Hashable]) -> None:
        rules = config.sequence_batching
        assert rules is not None
        self._rules = rules
        self._curve = curve
        self._key = key
        self.max_rows = max(1, config.max_batch_size)
        self.direct = rules.strategy == "direct"
        self.slots = self.max_rows if self.direct else rules.max_candidate_sequences or MAX_CANDIDATES

    def choose(self, heads: list[Turn], open_: int, now: float) -> Choice:
        """Chooses among the first turns of ready sequences, at least one, while so many are open on this copy."""
        heads = sorted(heads, key=_order)
        until = self._wait_until(heads, open_, now)
        if until > now:
            return Choice([], until)
        key = self._key(heads[0])
        alike = [turn for turn in heads if turn is heads[0] or self._key(turn) == key]
        return Choice(alike[: self._size(len(alike))])

    def _size(self, count: int) -> int:
        if self.direct:
            return count
        return max((size for size in self._rules.preferred_batch_size if size <= count), default=self.max_rows)

    def _wait_until(self, heads: list[Turn], open_: int, now: float) -> float:
        """The longest useful wait for more turns; 0 for sequences that are not open."""
        count = len(heads)
        if count >= min(open_, self.max_rows) or not self._rules.max_queue_delay:
            return now
        limit = min(heads[0].arrived + self._rules.max_queue_delay, heads[0].due)
        if self.direct:
            return now if count >= self._rules.minimum_slot_utilization * self.slots else limit
        if count in self._rules.preferred_batch_size:
            return now
        return min(limit, heads[-1].arrived + self._curve.saving(count))


def _order(turn: Turn) -> int:
    return turn.order
