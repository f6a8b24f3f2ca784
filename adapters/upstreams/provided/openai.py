"""OpenAI's files and batches, for a pool whose lines are submitted there."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError, InferenceError
from adapters.http1.client import Client
from adapters.upstreams.deferral import DeferredRequest, ProvidedResult
from adapters.upstreams.openai.paths import Paths
from adapters.upstreams.provided.exchanges import Exchanges, Id, Missing, Status, read, segment
from adapters.upstreams.provided.provider import UNREADABLE, ProviderLines, ProviderResult, ProviderState
from adapters.wire import decoding
from adapters.wire.failure_text import Scrubber

MARK = "headrace_submission"
"""The entry of a batch's metadata by which a submission is recognised after a crash."""
MOST_TEXT = 2000
SKEW = 300.0
"""Seconds by which the provider's clock may differ."""
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_FULL = frozenset({"token_limit_exceeded", "request_limit_exceeded", "rate_limit_exceeded", "too_many_batches"})
_STOPPED = frozenset({"batch_expired", "batch_cancelled"})
_encode = msgspec.json.Encoder().encode


class _Error(msgspec.Struct):
    code: Any = None
    message: Any = None

    @property
    def reason(self) -> str:
        """The provider's code; empty if it is no text."""
        return self.code if isinstance(self.code, str) else ""

    @property
    def text(self) -> str:
        """The provider's message, or its code."""
        return self.message[:MOST_TEXT] if isinstance(self.message, str) and self.message else self.reason[:MOST_TEXT]


class _Errors(msgspec.Struct):
    data: list[_Error] | None = None


class _Batch(msgspec.Struct):
    id: Id
    status: str
    created_at: float = 0.0
    metadata: dict[str, str] | None = None
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Errors | None = None


class _File(msgspec.Struct):
    id: Id


class _Response(msgspec.Struct):
    status_code: Status
    body: Raw


class _Line(msgspec.Struct):
    custom_id: Id
    response: _Response | None = None
    error: _Error | None = None


_line = msgspec.json.Decoder(_Line).decode


class OpenAIBatches:
    """See `ProviderBatches`."""

    def __init__(self, client: Client, scrubber: Scrubber, root: str | None = None) -> None:
        self._client = client
        self._api = Exchanges(
            client, Paths(client.base_path, "/v1", own=root).api, [("accept", "application/json")], scrubber
        )

    def line(self, custom_id: str, request: DeferredRequest) -> bytes:
        body = Raw(request.body)
        return _encode({"custom_id": custom_id, "method": "POST", "url": request.url, "body": body})

    async def submit(self, lines: ProviderLines) -> str:
        boundary = secrets.token_hex(16)
        form = _form(boundary, f"{lines.id}.jsonl", b"\n".join(lines.lines) + b"\n")
        kind = f"multipart/form-data; boundary={boundary}"
        file = read(await self._api.json("POST", "/files", form, kind), _File)
        fields = {
            "input_file_id": file.id, "endpoint": lines.url, "completion_window": "24h",
            "metadata": {MARK: lines.id},
        }  # fmt: skip
        return read(await self._api.json("POST", "/batches", _encode(fields)), _Batch).id

    async def submitted(self, id_: str, since: float, count: int, others: frozenset[str]) -> str | None:
        async for page in self._api.pages("/batches?limit=100", "after", _Batch):
            for batch in page:
                if (batch.metadata or {}).get(MARK) == id_:
                    return batch.id
            if page and page[-1].created_at < since - SKEW:
                break
        return None

    async def state(self, batch: str) -> ProviderState:
        shown = await self._shown(batch)
        if shown.status != "failed":
            return ProviderState(shown.status in _ENDED)
        errors = (shown.errors.data if shown.errors is not None else None) or [_Error()]
        text = "; ".join(error.text for error in errors[:3] if error.text)
        text = self._api.scrubber.text(text) or "the provider gave no reason"
        return ProviderState(True, text, any(e.reason in _FULL for e in errors))

    async def cancel(self, batch: str) -> None:
        try:
            await self._api.json("POST", f"/batches/{segment(batch)}/cancel")
        except (CallerError, Missing):
            return  # it has ended

    async def results(self, batch: str) -> AsyncIterator[ProviderResult]:
        shown, failure = await self._shown(batch), None
        for file in (shown.output_file_id, shown.error_file_id):
            if file is None:
                continue
            try:
                async for raw in self._api.lines(f"/files/{segment(file)}/content"):
                    yield result_of(raw)
            except InferenceError as error:
                failure = error  # the results of the other file count
        if failure is not None:
            raise failure

    async def discard(self, batch: str) -> None:
        shown = await self._shown(batch)
        for file in (shown.input_file_id, shown.output_file_id, shown.error_file_id):
            if file is not None:
                try:
                    await self._api.json("DELETE", f"/files/{segment(file)}")
                except InferenceError:
                    continue  # the provider deletes it after its own retention

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _shown(self, batch: str) -> _Batch:
        return read(await self._api.json("GET", f"/batches/{segment(batch)}"), _Batch)


def result_of(raw: bytes) -> ProviderResult:
    """The result in a line; `UNREADABLE` for a line of another form."""
    try:
        line = _line(raw)
    except decoding.MALFORMED_JSON:
        return UNREADABLE
    if line.response is not None:
        return ProviderResult(line.custom_id, ProvidedResult(line.response.status_code, bytes(line.response.body)))
    error = line.error or _Error()
    if error.reason in _STOPPED:
        return ProviderResult(line.custom_id, None)
    message = f"The provider did not run the request: {error.text or 'it gave no reason'}"
    body = _encode({"error": {"message": message, "code": error.reason or None, "type": "invalid_request_error"}})
    return ProviderResult(line.custom_id, ProvidedResult(400, body))


def _form(boundary: str, name: str, data: bytes) -> bytes:
    """A form with the fields `purpose` and `file` (RFC 7578)."""
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n'
        "content-type: application/jsonl\r\n\r\n"
    )
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
