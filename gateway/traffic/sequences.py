"""The endpoint that has the state of a sequence: all requests of the sequence are routed there."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from adapters.base import Answer
from adapters.requests import InferRequest, ModelRequest
from gateway.traffic.pool import Pool

MAX_SEQUENCES = 65_536
"""Maximum of open sequences. The sequence that was idle for longest is dropped first."""
IDLE_SECONDS = 3600.0
"""Seconds until an idle sequence is dropped. Servers drop it much earlier."""

_Key = tuple[str, str, str]


class Home(NamedTuple):
    """The endpoint that has the state of a sequence, and the arm of the split that led there."""

    pool: str
    endpoint: str
    arm: str | None
    at: float


class Sequences:
    """Open sequences of this process. A sequence of another process is located by its name, see `Pool.lease`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._places: OrderedDict[_Key, Home] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def place(self, tenant: str, model: str, request: ModelRequest, pools: Mapping[str, Pool]) -> Home | None:
        """The endpoint that has the state of the request's sequence; None for a sequence that is new or unknown."""
        if isinstance(request, InferRequest) and not request.starts:
            place = self._places.get((tenant, model, request.sequence))
            if place is not None and self._clock() - place.at < IDLE_SECONDS and place.pool in pools:
                return place
        return None

    def answered(self, tenant: str, model: str, request: ModelRequest, answer: Answer, arm: str | None) -> None:
        """Record the endpoint that answered, unless the request ends its sequence."""
        key = (tenant, model, request.sequence)
        self._places.pop(key, None)
        if isinstance(request, InferRequest) and request.ends:
            return
        self._places[key] = Home(answer.pool, answer.endpoint, arm, self._clock())
        if len(self._places) > MAX_SEQUENCES:
            self._places.popitem(last=False)
