"""One line of a batch as an ordinary request: a front decodes it, the core answers it, the record has its charge."""

import logging
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import BackendError, CredentialError, InferenceError
from adapters.http1.message import Headers, Request, Response
from gateway.auth.keys import Principal
from gateway.core import Core, internal_error
from gateway.fronts.anthropic import PATH as MESSAGES
from gateway.fronts.anthropic import AnthropicFront
from gateway.fronts.comments import EventOf
from gateway.fronts.door import Door, DoorPath, Fields, HeadersOf, Shape
from gateway.fronts.errors import openai_response
from gateway.fronts.oip_http import OipFront
from gateway.fronts.openai import OpenAIFront
from gateway.fronts.responses import PATH as RESPONSES
from gateway.fronts.responses import ResponsesFront
from gateway.stored.keeper import Keeper
from gateway.telemetry import Record
from gateway.traffic.queue import PRIORITY_HEADER
from gateway.usage.counter import UsageCounter
from gateway.usage.labels import COUNTERS, HOUR, UsageLabels
from policies.batches.lines import TENSORS

log = logging.getLogger(__name__)
_HEADERS: Mapping[bytes, bytes] = {b"content-type": b"application/json", PRIORITY_HEADER.encode(): b"batch"}
_PEER = "batch"


class LineRequest(Request):
    """A line as a request. `record` and `error` are those of its end."""

    __slots__ = ("_body", "error", "principal", "record")

    def __init__(self, principal: Principal, url: str, body: bytes) -> None:
        super().__init__("POST", url.encode("latin-1", "replace"), Headers(dict(_HEADERS)), _PEER)
        self.principal = principal
        self.record: Record | None = None
        self.error: InferenceError | None = None
        self._body = body

    async def read_encoded(self) -> bytes:
        return self._body


class LineDoor(Door):
    """A door whose requests have their principal."""

    def serve(
        self,
        http: Request,
        route: DoorPath | None,
        unknown: str,
        refusal: Shape,
        headers_of: HeadersOf | None = None,
        event_of: EventOf | None = None,
    ) -> Awaitable[Response]:
        assert isinstance(http, LineRequest)
        record = http.record = self.record(http.headers, route.operation if route else "unknown", http.peer)
        record.of_batch = True

        def refused(error: InferenceError, headers: Fields) -> Response:
            http.error = error
            return refusal(error, headers)

        return self._answer(http, route, unknown, refused, headers_of or self.headers, record)

    def _authenticate(self, http: Request, record: Record) -> Principal:
        assert isinstance(http, LineRequest)
        principal = http.principal
        record.tenant, record.key, record.roles = principal.tenant, principal.key_id, principal.roles
        if self.core.snapshot.credentials.keys.has_ended(principal.key_id, self.core.wall()):
            raise CredentialError("the key that created the batch is revoked or expired")
        return principal


class LineEnd(NamedTuple):
    """The end of one attempt of a line. `body` is a JSON text on one line."""

    status: int
    body: Raw
    request_id: str
    error: InferenceError | None
    charge: "LineCharge"


class LineCharge(UsageCounter):
    """Counts one request, for the record of its line."""

    def __init__(self, currency: str) -> None:
        self.currency = currency
        self.lost = 0
        self.labels: UsageLabels | None = None
        self.hour = 0
        self.amounts = memoryview(bytearray(8 * len(COUNTERS))).cast("q")

    def _counters(self, record: Record) -> "memoryview[int]":
        currency = self.currency if record.cost is None else record.cost.currency
        self.labels = UsageLabels(record.tenant, record.key, record.model, record.arm or "", currency)
        self.hour = int(record.time) // HOUR
        return self.amounts


class LineCalls:
    """Answers lines through the fronts of their endpoints."""

    def __init__(self, core: Core, keeper: Keeper | None) -> None:
        door = LineDoor(core)
        self._core = core
        self._openai = OpenAIFront(door, 0)
        self._responses = ResponsesFront(door, keeper)
        self._messages = AnthropicFront(door, 0)
        self._tensors = OipFront(door, lambda: True)

    async def call(self, principal: Principal, url: str, body: bytes) -> LineEnd:
        """Answer one line. Failures are a status and an error, as for a client."""
        http = LineRequest(principal, url, body)
        try:
            response = await self._dispatch(http)
        except Exception:
            log.exception("a line of a batch failed")
            http.error = internal_error()
            response = openai_response(http.error, [])
        record = http.record
        assert record is not None
        status, error = response.status, http.error
        if isinstance(response.body, bytes):
            text = await one_line(response.body)
        else:
            await response.body.aclose()
            text = None
        if text is None:
            status, error = 502, BackendError("The answer is not JSON, so that no batch can contain it.")
            text = Raw(msgspec.json.encode({"error": {"message": error.message, "code": error.code}}))
        charge = LineCharge(self._currency())
        charge.count(record)
        return LineEnd(status, text, record.request_id, error, charge)

    async def _dispatch(self, http: LineRequest) -> Response:
        if http.target.startswith(b"/v2/"):
            return await self._tensors(http)
        if http.target == RESPONSES:
            return await self._responses(http)
        if http.target == MESSAGES:
            return await self._messages(http)
        return await self._openai(http)

    def _currency(self) -> str:
        currencies = {price.currency for price in self._core.snapshot.prices.values()}
        return currencies.pop() if len(currencies) == 1 else ""


class _Model(msgspec.Struct):
    model: Any = None


_model = msgspec.json.Decoder(_Model).decode


def model_of(url: str, body: bytes) -> str | None:
    """The name of the model in a line; None without one."""
    if (match := TENSORS.fullmatch(url)) is not None:
        return unquote(match[1])
    try:
        model = _model(body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return model if isinstance(model, str) else None


async def one_line(body: bytes) -> Raw | None:
    """A JSON text without line breaks; None if it is not JSON."""
    return await offload.scan(len(body), _one_line, body)


def _one_line(body: bytes) -> Raw | None:
    try:
        msgspec.json.decode(body, type=Raw)
        if b"\n" in body or b"\r" in body:
            return Raw(msgspec.json.encode(msgspec.json.decode(body)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Raw(body)
