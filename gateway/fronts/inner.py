"""Requests of the gateway's own tasks through the fronts of clients, such as messages of brokers and lines of batches.

The task has authenticated the principal. The front decodes the body, the core answers, the record is that of a client.
"""

from collections.abc import Awaitable, Callable

from adapters.errors import CredentialError, InferenceError
from adapters.http1.message import Headers, Request, Response
from gateway.auth.keys import Principal
from gateway.fronts.anthropic import AnthropicFront
from gateway.fronts.comments import EventOf
from gateway.fronts.door import Authenticating, Door, DoorPath, Fields, HeadersOf, Shape
from gateway.fronts.oip_http import OipFront
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.paths import MESSAGES, RESPONSES
from gateway.fronts.responses import ResponsesFront, ResponseStorage
from gateway.request.core import Core
from gateway.telemetry import Record


class InnerRequest(Request):
    """A request whose body is in memory. `record` and `error` are those of its end."""

    __slots__ = ("_body", "error", "principal", "record")
    credential = "the key of this request"
    """The subject of the error for a key that has ended."""

    def __init__(self, principal: Principal, target: bytes, headers: Headers, body: bytes, peer: str) -> None:
        super().__init__("POST", target, headers, peer)
        self.principal = principal
        self.record: Record | None = None
        self.error: InferenceError | None = None
        self._body = body

    async def read_encoded(self) -> bytes:
        return self._body

    def begin(self, record: Record) -> None:
        """Hold the record of this request, before anything else happens."""
        self.record = record


class InnerDoor(Door):
    """A door whose requests have their principal."""

    def serve(
        self,
        http: Request,
        route: DoorPath | None,
        unknown: str,
        refusal: Shape,
        headers_of: HeadersOf | None = None,
        event_of: EventOf | None = None,
        authenticating: Authenticating | None = None,
    ) -> Awaitable[Response]:
        assert isinstance(http, InnerRequest)
        record = self.record(http.headers, route.operation if route else "unknown", http.peer)
        http.begin(record)

        def refused(error: InferenceError, headers: Fields) -> Response:
            http.error = error
            return refusal(error, headers)

        return self._answer(http, route, unknown, refused, headers_of or self.headers, record)

    def _authenticate(self, http: Request, record: Record) -> Principal:
        assert isinstance(http, InnerRequest)
        principal = http.principal
        record.hold(principal)
        if self.core.snapshot.credentials.keys.has_ended(principal.key_id, self.core.wall()):
            raise CredentialError(f"{http.credential} is revoked or expired").because("expired", key=http.credential)
        return principal


class InnerFronts:
    """The fronts by path."""

    def __init__(self, core: Core, storage: Callable[[Door], ResponseStorage]) -> None:
        door = InnerDoor(core)
        self._openai = OpenAIFront(door, 0)
        self._responses = ResponsesFront(door, storage(door))
        self._messages = AnthropicFront(door, 0)
        self._tensors = OipFront(door, lambda: True)

    async def answer(self, http: InnerRequest) -> Response:
        """Answer one request. Failures are a status, as for a client, and `http.error`."""
        if http.target.startswith(b"/v2/"):
            return await self._tensors(http)
        if http.target == RESPONSES:
            return await self._responses(http)
        if http.target == MESSAGES:
            return await self._messages(http)
        return await self._openai(http)
