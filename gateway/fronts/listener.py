"""The data listener: one port, and which front a path belongs to."""

from collections.abc import Awaitable, Callable, Iterator

from adapters.http1.message import Request, Response
from gateway.core import Core
from gateway.fronts.door import Door, Route
from gateway.fronts.oip_http import OipFront
from gateway.fronts.openai import OpenAIFront


class Fronts:
    """The handler of the data listener. `ready` tells whether the gateway takes requests and can answer them."""

    def __init__(self, core: Core, ready: Callable[[], bool] = lambda: True) -> None:
        self.door = Door(core)
        self._openai = OpenAIFront(self.door)
        self._oip = OipFront(self.door, ready)

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        return self._oip(http) if http.target.startswith(b"/v2") else self._openai(http)

    def routes(self) -> Iterator[Route]:
        """Every path's, of all fronts."""
        yield from self._openai.routes()
        yield from self._oip.routes()
