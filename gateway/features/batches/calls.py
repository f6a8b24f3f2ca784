"""One line of a batch as an ordinary request: a front decodes it, the core answers it, the record has its charge."""

import logging
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import BackendError, InferenceError
from adapters.http1.message import Headers
from adapters.upstreams.deferral import LinePass, line_pass
from adapters.wire import decoding
from gateway.auth.keys import Principal
from gateway.features.journal.sink import usage_line
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.stored_responses import StoredResponses
from gateway.features.usage.charges import LARGEST, charge_of
from gateway.features.usage.labels import COUNTERS, UsageLabels
from gateway.fronts.errors import openai_response
from gateway.fronts.inner import InnerFronts, InnerRequest
from gateway.request.core import Core, internal_error
from gateway.telemetry import Record
from gateway.traffic.queue import PRIORITY_HEADER
from policies.batches.lines import TENSORS

log = logging.getLogger(__name__)
_HEADERS: Mapping[bytes, bytes] = {b"content-type": b"application/json", PRIORITY_HEADER.encode(): b"batch"}
_PEER = "batch"


class LineRequest(InnerRequest):
    """A line as a request."""

    __slots__ = ("_rng",)
    credential = "the key that created the batch"

    def __init__(self, principal: Principal, url: str, body: bytes, rng: Random | None) -> None:
        super().__init__(principal, url.encode("latin-1", "replace"), Headers(dict(_HEADERS)), body, _PEER)
        self._rng = rng

    def begin(self, record: Record) -> None:
        """Mark the record as that of a line."""
        super().begin(record)
        record.of_batch, record.rng = True, self._rng


class LineEnd(NamedTuple):
    """The end of one attempt of a line. `body` is a JSON text on one line."""

    status: int
    body: Raw
    request_id: str
    error: InferenceError | None
    charge: "LineCharge"
    is_personal: bool = False
    """Whether the body has personal data that a guard has masked: it is stored sealed."""


class LineCharge(NamedTuple):
    """The usage of one attempt of a line. It has no labels if it costs nothing and used nothing."""

    labels: UsageLabels | None = None
    hour: int = 0
    amounts: tuple[int, ...] = (0,) * len(COUNTERS)


def _charge(record: Record, currency: str) -> LineCharge:
    if not record.tenant or not record.model:
        return LineCharge()
    hour, labels, amounts = charge_of(usage_line(record, counted=True, draws=False), currency)
    if amounts[0] > LARGEST:
        log.error("batches: a line costs more than %d picos, and is charged that much", LARGEST)
        amounts[0] = LARGEST
    return LineCharge(labels, hour, tuple(amounts))


class LineCalls:
    """Answers lines through the fronts of their endpoints."""

    def __init__(self, core: Core, keeper: Keeper | None) -> None:
        self._core = core
        self._fronts = InnerFronts(core, partial(StoredResponses, keeper=keeper))

    async def call(
        self, principal: Principal, url: str, body: bytes, passing: LinePass | None = None, seed: str = ""
    ) -> LineEnd:
        """Answer one line. Failures are a status and an error, as for a client.

        A line that may go to a provider has a pass, and a seed by which both passes take the same route. Raises
        `Deferred`.
        """
        http = LineRequest(principal, url, body, None if passing is None else Random(seed))
        token = line_pass.set(passing)
        try:
            response = await self._fronts.answer(http)
        except Exception:
            log.exception("a line of a batch failed")
            http.error = internal_error()
            response = openai_response(http.error, [])
        finally:
            line_pass.reset(token)
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
        return LineEnd(
            status, text, record.request_id, error, _charge(record, self._currency()), record.masked is not None
        )

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
    except decoding.MALFORMED_JSON:
        return None
    return model if isinstance(model, str) else None


async def one_line(body: bytes) -> Raw | None:
    """A JSON text without line breaks; None if it is not JSON."""
    return await offload.scan(len(body), _one_line, body)


def _one_line(body: bytes) -> Raw | None:
    try:
        msgspec.json.decode(body, type=Raw)
        body.decode()  # the decoder passes bytes that are not UTF-8, which would spoil the whole file of results
        if b"\n" in body or b"\r" in body:
            return Raw(msgspec.json.encode(msgspec.json.decode(body)))
    except decoding.MALFORMED_JSON:
        return None
    return Raw(body)
