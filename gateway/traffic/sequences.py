"""Which endpoint has a sequence's state: its requests all go there, wherever the rules lead by now."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from adapters.base import Answer, Upstream
from adapters.types import InferRequest, ModelRequest
from gateway.traffic.pool import Pool

MAX_SEQUENCES = 65_536
"""Open at the same time; the one that was silent for longest is forgotten first."""
IDLE_SECONDS = 3600.0
"""Servers give up silent ones long before."""

_Key = tuple[str, str, str]


class _Slot(NamedTuple):
    pool: str
    endpoint: str
    arm: str | None
    at: float


class Sequences:
    """Open sequences of this process. What another process began is found by its name, see `Pool.lease`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots: OrderedDict[_Key, _Slot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def place(
        self, model: str, request: ModelRequest, plan: Upstream, pools: Mapping[str, Pool], arm: str | None
    ) -> tuple[Upstream, str | None]:
        """Who is to answer, and the arm that it was drawn for: the plan and its arm where the sequence is new."""
        if isinstance(request, InferRequest) and not request.starts:
            slot = self._slots.get((request.tenant, model, request.sequence))
            if slot is not None and self._clock() - slot.at < IDLE_SECONDS and slot.pool in pools:
                request.place = slot.endpoint
                return pools[slot.pool], slot.arm
        return plan, arm

    def answered(self, model: str, request: ModelRequest, answer: Answer, arm: str | None) -> None:
        """An endpoint has it, or had it until now."""
        key = (request.tenant, model, request.sequence)
        self._slots.pop(key, None)
        if isinstance(request, InferRequest) and request.ends:
            return
        self._slots[key] = _Slot(answer.pool, answer.endpoint, arm, self._clock())
        if len(self._slots) > MAX_SEQUENCES:
            self._slots.popitem(last=False)
