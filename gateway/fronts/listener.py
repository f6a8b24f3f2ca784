"""The HTTP listener: selects the front of a request by its path."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from adapters.http1.message import Request, Response
from gateway.fronts.anthropic import MODELS, VERSION, AnthropicFront
from gateway.fronts.anthropic import PATH as MESSAGES
from gateway.fronts.apps import PATHS, AppsFront
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.metadata import Metadata
from gateway.fronts.oip_http import OipFront
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.passed import PassedFront
from gateway.fronts.paths import readdressed
from gateway.fronts.predict_v1 import PredictFront
from gateway.fronts.responses import PATH as RESPONSES
from gateway.fronts.responses import ResponsesFront

GENERATION = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"})
"""OpenAI's paths of most requests. Every other path is compared with the prefixes of each front."""


class Front(Protocol):
    """The handler of some paths."""

    def __call__(self, http: Request) -> Awaitable[Response]: ...

    def routes(self) -> Iterable[DoorPath]:
        """All routes."""
        ...


class Fronts:
    """The handler of the data listener. `ready` reports whether the gateway accepts and can answer requests."""

    def __init__(
        self,
        door: Door,
        ready: Callable[[], bool] = lambda: True,
        responses: ResponsesFront | None = None,
        features: Sequence[tuple[bytes, Front]] = (),
    ) -> None:
        """`features` are the fronts of features, by the prefix of their paths."""
        self.door = door
        created = int(time.time())
        self._openai = OpenAIFront(door, created)
        predict, oip = PredictFront(door, Metadata(door.core), created), OipFront(door, ready)
        self._anthropic = AnthropicFront(door, created)
        self._fronts: tuple[tuple[bytes, Front], ...] = (
            (b"/v2", oip),
            (b"/v1/models/", predict),
            (RESPONSES, responses or ResponsesFront(door)),
            *features,
            (MESSAGES, self._anthropic),
        )
        self._apps = AppsFront(self.door)
        self._passed = PassedFront(self.door)

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        if http.target in GENERATION:
            return self._openai(http)
        http = readdressed(http)
        if http.target.startswith(MODELS) and VERSION in http.headers:
            return self._anthropic(http)
        if self._passed.serves(http.target):
            return self._passed(http)
        for prefix, front in self._fronts:
            if http.target.startswith(prefix):
                return front(http)
        if http.target.startswith(PATHS):
            return self._apps(http)
        return self._openai(http)

    def routes(self) -> Iterator[DoorPath]:
        """The routes of all fronts."""
        for front in (self._openai, *(front for _, front in self._fronts), self._apps, self._passed):
            yield from front.routes()
