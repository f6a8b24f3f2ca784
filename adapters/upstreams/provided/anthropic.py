"""Anthropic's message batches, for a pool whose lines are submitted there."""

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.http1.client import Client
from adapters.upstreams.deferral import DeferredRequest, ProvidedResult
from adapters.upstreams.provided.exchanges import Exchanges, Id, Missing, read, segment
from adapters.upstreams.provided.provider import UNREADABLE, ProviderLines, ProviderResult, ProviderState, Unsure
from adapters.wire import decoding
from adapters.wire.failure_text import Scrubber

PATH = "/messages/batches"
SKEW = 300.0
"""Seconds by which the provider's clock may differ."""
STATUSES = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504,
    "overloaded_error": 529,
}  # fmt: skip
"""The status of each type of error: a result of a batch has the type only."""
_encode = msgspec.json.Encoder().encode


class _Counts(msgspec.Struct):
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class _Batch(msgspec.Struct):
    id: Id
    processing_status: str
    request_counts: _Counts
    created_at: str

    @property
    def ended(self) -> bool:
        return self.processing_status == "ended"

    @property
    def total(self) -> int:
        counts = self.request_counts
        return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired


class _Type(msgspec.Struct):
    type: str = ""


class _Failure(msgspec.Struct):
    error: _Type


class _Result(msgspec.Struct):
    type: str
    message: Raw = Raw()
    error: Raw = Raw()


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


_line = msgspec.json.Decoder(_Line).decode
_failure = msgspec.json.Decoder(_Failure).decode


class AnthropicBatches:
    """See `ProviderBatches`. These batches have no metadata: a submission is recognised by its results."""

    def __init__(self, client: Client, version: str, betas: Sequence[str], scrubber: Scrubber) -> None:
        self._client = client
        fields = [("accept", "application/json"), ("anthropic-version", version)]
        if betas:
            fields.append(("anthropic-beta", ",".join(betas)))
        self._api = Exchanges(client, client.base_path.removesuffix("/v1") + "/v1", fields, scrubber)

    def line(self, custom_id: str, request: DeferredRequest) -> bytes:
        return _encode({"custom_id": custom_id, "params": Raw(request.body)})

    async def submit(self, lines: ProviderLines) -> str:
        body = b'{"requests":[%b]}' % b",".join(lines.lines)
        return read(await self._api.json("POST", PATH, body), _Batch).id

    async def submitted(self, id_: str, since: float, count: int, others: frozenset[str]) -> str | None:
        """A batch of another client may have the same number of requests: only results show the difference."""
        running = False
        async for page in self._api.pages(f"{PATH}?limit=100", "after_id", _Batch):
            recent = [batch for batch in page if _seconds(batch.created_at) >= since - SKEW]
            for batch in recent:
                # A batch that is being examined may not have counted its requests yet.
                if batch.id in others or batch.total not in (count, 0):
                    continue
                if not batch.ended:
                    running = True
                elif await self._begins(batch.id, id_):
                    return batch.id
            if len(recent) < len(page):
                break
        if running:
            raise Unsure
        return None

    async def _begins(self, batch: str, submission: str) -> bool:
        """Whether the results of a batch are those of a submission."""
        try:
            async for result in self.results(batch):
                if result is not UNREADABLE:
                    return result.custom_id.startswith(f"{submission}-")
        except Missing:
            return False
        return False

    async def state(self, batch: str) -> ProviderState:
        return ProviderState(read(await self._api.json("GET", f"{PATH}/{segment(batch)}"), _Batch).ended)

    async def cancel(self, batch: str) -> None:
        try:
            await self._api.json("POST", f"{PATH}/{segment(batch)}/cancel")
        except (CallerError, Missing):
            return  # it has ended

    async def results(self, batch: str) -> AsyncIterator[ProviderResult]:
        async for raw in self._api.lines(f"{PATH}/{segment(batch)}/results"):
            yield result_of(raw)

    async def discard(self, batch: str) -> None:
        await self._api.json("DELETE", f"{PATH}/{segment(batch)}")

    async def aclose(self) -> None:
        await self._client.aclose()


def result_of(raw: bytes) -> ProviderResult:
    """The result in a line; `UNREADABLE` for a line of another form."""
    try:
        line = _line(raw)
        result, status = line.result, 200
        if result.type == "errored":
            status = STATUSES.get(_failure(result.error).error.type, 500)
        elif result.type != "succeeded":
            return ProviderResult(line.custom_id, None)
    except decoding.MALFORMED_JSON:
        return UNREADABLE
    body = result.message if result.type == "succeeded" else result.error
    return ProviderResult(line.custom_id, ProvidedResult(status, bytes(body)))


def _seconds(text: str) -> float:
    """The time of a batch. One that cannot be read counts as recent."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return math.inf
