"""A sequence and its requests, the open sequences, and the choice of those that compute together.

Pure: time is an argument.

direct   a sequence has its own slot of the batch until it ends; a model may store state by slot
oldest   turns that came first are joined like any other requests, one of each sequence at most
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from typing import NamedTuple, Protocol

from adapters.errors import CallerError, CapacityError
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


MAX_BACKLOG = 1024
"""The number of sequences that may wait for a slot."""


class Slots(Protocol):
    """The slots of one copy."""

    @property
    def room(self) -> tuple[bool, int]:
        """The rank of a copy for another sequence: its readiness, and the number of free slots."""
        ...

    def take(self, sequence: RequestSequence) -> None: ...

    def leave(self, sequence: RequestSequence) -> None: ...


class OpenSequences:
    """The sequences of one model. A sequence waits in the backlog for a slot, and has it until it is closed."""

    def __init__(self, model: str, copies: Sequence[Slots], max_idle: float) -> None:
        self.max_idle = max_idle
        self._model = model
        self._copies = copies
        self._named: dict[SequenceId, RequestSequence] = {}
        self._placed: dict[RequestSequence, Slots] = {}
        self._backlog: dict[RequestSequence, None] = {}

    def __len__(self) -> int:
        return len(self._placed) + len(self._backlog)

    def __iter__(self) -> Iterator[RequestSequence]:
        return iter([*self._placed, *self._backlog])

    def holds(self, name: SequenceId) -> bool:
        sequence = self._named.get(name)
        return sequence is not None and not sequence.ending

    def of(self, place: SequencePlace, now: float) -> RequestSequence:
        """The sequence that a request continues or begins. Raises `CallerError` for neither."""
        sequence = self._named.get(place.id)
        if place.start:
            if sequence is not None and not sequence.ending:
                return sequence  # it starts over in its slot, after the requests that it has
            return self._begin(place, sequence, now)
        if sequence is None or sequence.ending:
            raise CallerError(
                f"inference request for sequence {place.id} to model '{self._model}' must specify the START flag on the"
                " first request of the sequence. It was not begun, has ended, was idle for more than"
                f" {self.max_idle:g} s or was lost with its copy of the model.",
                code="sequence_not_open",
                param="sequence_start",
            )
        return sequence

    def _begin(self, place: SequencePlace, after: RequestSequence | None, now: float) -> RequestSequence:
        if len(self._backlog) >= MAX_BACKLOG:
            raise CapacityError(
                f"All places for sequences are taken, and {len(self._backlog)} sequences wait for one; try later.",
                code="backlog_full",
                retry_after=self.max_idle,
            )
        sequence = self._named[place.id] = RequestSequence(place.id, after, now)
        self._backlog[sequence] = None
        return sequence

    def place(self) -> None:
        """Assign free slots to the sequences that have waited longest."""
        if not self._backlog or not any(copy.room[1] for copy in self._copies):
            return
        for sequence in [s for s in self._backlog if s.predecessor() is None]:
            copy = max(self._copies, key=_room)
            if not copy.room[1]:
                return
            del self._backlog[sequence]
            self._placed[sequence] = copy
            copy.take(sequence)

    def close(self, sequence: RequestSequence) -> None:
        """Remove a sequence that has ended. Its slot is free for another."""
        sequence.closed = sequence.ending = True
        if self._named.get(sequence.id) is sequence:
            before = sequence.predecessor()
            if before is None:
                del self._named[sequence.id]
            else:  # the start of the next sequence waits for that
                self._named[sequence.id] = before
        self._backlog.pop(sequence, None)
        copy = self._placed.pop(sequence, None)
        if copy is not None:
            copy.leave(sequence)

    def idle(self, now: float) -> tuple[list[RequestSequence], float]:
        """Sequences whose idle time has passed, and the time of the next check."""
        over, next_ = [], inf
        for sequence in self._placed:
            if not sequence.turns and not sequence.running:
                until = sequence.quiet_since + self.max_idle
                if until <= now:
                    over.append(sequence)
                else:
                    next_ = min(next_, until)
        return over, next_


def _room(copy: Slots) -> tuple[bool, int]:
    # One that is not ready has room too, which is taken only when no other has any.
    ready, free = copy.room
    return ready and free > 0, free
