"""The HTTP listener: selects the front of a request by its path."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Protocol

from adapters.http1.message import Request, Response
from adapters.wire.openai.model_field import PASSTHROUGH
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.paths import APPS, GEMINI, MESSAGES, MODEL, MODELS, PROJECTS, RESPONSES, VERSION, readdressed

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

    def __init__(self, module: str, name: str, *arguments: Callable[[], object]) -> None:
        """The class `name` of a module, and what gives its arguments."""
        self._place = module, name
        self._arguments = arguments

    @cached_property
    def front(self) -> Front:
        """The front itself."""
        module, name = self._place
        made: Front = getattr(import_module(module), name)(*(argument() for argument in self._arguments))
        return made

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
        responses: Front | None = None,
        features: Sequence[tuple[bytes, Front]] = (),
    ) -> None:
        """`features` are the fronts of features, by the prefix of their paths."""
        self.door = door
        now = int(time.time())
        own, created = (lambda: door), (lambda: now)
        self._openai = OpenAIFront(door, now)
        self._anthropic = LateFront("gateway.fronts.anthropic", "AnthropicFront", own, created)
        self._oip = LateFront("gateway.fronts.oip_http", "OipFront", own, lambda: ready)
        self._vertex = LateFront("gateway.fronts.clouds.vertex", "VertexFront", own, created)
        self._fronts: tuple[tuple[bytes, Front], ...] = (
            (b"/v2", self._oip),
            (b"/v1/models/", LateFront("gateway.fronts.predict_v1", "PredictFront", own, created)),
            (RESPONSES, responses or LateFront("gateway.fronts.responses", "ResponsesFront", own)),
            *features,
            (MESSAGES, self._anthropic),
            (GEMINI, LateFront("gateway.fronts.clouds.gemini", "GeminiFront", own)),
            (MODEL, LateFront("gateway.fronts.clouds.bedrock", "BedrockFront", own, created)),
            *((path, self._vertex) for path in PROJECTS),
        )
        self._apps = LateFront("gateway.fronts.apps", "AppsFront", own)
        self._passed = LateFront("gateway.fronts.passed", "PassedFront", own)

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        if http.target in GENERATION:
            return self._openai(http)
        if http.target.startswith(b"/v2/models/") and not http.target.endswith(b"/"):
            return self._oip(http)
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
        for front in dict.fromkeys((self._openai, *(front for _, front in self._fronts), self._apps, self._passed)):
            yield from front.routes()
