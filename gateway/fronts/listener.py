"""The HTTP listener: selects the front of a request by its path."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Protocol

from adapters.http1.message import Request, Response
from adapters.wire.openai.model_field import PASSTHROUGH
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.paths import APPS, MESSAGES, MODELS, RESPONSES, VERSION, readdressed

PASSED = frozenset(path.encode() for path in PASSTHROUGH)
GENERATION = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"})
"""OpenAI's paths of most requests. Every other path is compared with the prefixes of each front."""


class Front(Protocol):
    """The handler of some paths."""

    def __call__(self, http: Request) -> Awaitable[Response]: ...

    def routes(self) -> Iterable[DoorPath]:
        """All routes."""
        ...


class LateFront:
    """A front that is imported and made with the first request to its paths: most gateways serve few APIs."""

    def __init__(self, make: Callable[[], Front]) -> None:
        self._make = make

    @cached_property
    def front(self) -> Front:
        """The front itself."""
        return self._make()

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        return self.front(http)

    def routes(self) -> Iterable[DoorPath]:
        """All routes."""
        return self.front.routes()


class Fronts:
    """The handler of the data listener. `ready` reports whether the gateway accepts and can answer requests."""

    def __init__(
        self,
        door: Door,
        ready: Callable[[], bool] = lambda: True,
        responses: Callable[[], Front] | None = None,
        features: Sequence[tuple[bytes, Front]] = (),
    ) -> None:
        """`features` are the fronts of features, by the prefix of their paths; `responses` makes that of Responses."""
        self.door = door
        self._ready = ready
        self._created = int(time.time())
        self._openai = OpenAIFront(door, self._created)
        self._anthropic = LateFront(self._make_anthropic)
        self._fronts: tuple[tuple[bytes, Front], ...] = (
            (b"/v2", LateFront(self._make_oip)),
            (b"/v1/models/", LateFront(self._make_predict)),
            (RESPONSES, LateFront(responses or self._make_responses)),
            *features,
            (MESSAGES, self._anthropic),
        )
        self._apps = LateFront(self._make_apps)
        self._passed = LateFront(self._make_passed)

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        if http.target in GENERATION:
            return self._openai(http)
        http = readdressed(http)
        if http.target.startswith(MODELS) and VERSION in http.headers:
            return self._anthropic(http)
        if http.target in PASSED:
            return self._passed(http)
        for prefix, front in self._fronts:
            if http.target.startswith(prefix):
                return front(http)
        if http.target.startswith(APPS):
            return self._apps(http)
        return self._openai(http)

    def routes(self) -> Iterator[DoorPath]:
        """The routes of all fronts."""
        for front in (self._openai, *(front for _, front in self._fronts), self._apps, self._passed):
            yield from front.routes()

    def _make_anthropic(self) -> Front:
        from gateway.fronts.anthropic import AnthropicFront

        return AnthropicFront(self.door, self._created)

    def _make_oip(self) -> Front:
        from gateway.fronts.oip_http import OipFront

        return OipFront(self.door, self._ready)

    def _make_predict(self) -> Front:
        from gateway.fronts.metadata import Metadata
        from gateway.fronts.predict_v1 import PredictFront

        return PredictFront(self.door, Metadata(self.door.core), self._created)

    def _make_responses(self) -> Front:
        from gateway.fronts.responses import ResponsesFront

        return ResponsesFront(self.door)

    def _make_apps(self) -> Front:
        from gateway.fronts.apps import AppsFront

        return AppsFront(self.door)

    def _make_passed(self) -> Front:
        from gateway.fronts.passed import PassedFront

        return PassedFront(self.door)
