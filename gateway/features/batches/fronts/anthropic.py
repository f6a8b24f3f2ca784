"""`/v1/messages/batches`: Anthropic's Message Batches."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import CallerError, InferenceError, NotFound, StorageFull
from adapters.http1.message import Request, Response
from adapters.wire import decoding
from adapters.wire.decoding import check_json
from adapters.wire.field_names import MESSAGES
from config.schema.batches import BatchesConfig
from gateway.auth.keys import Principal
from gateway.features.batches.fronts.files import OVERHEAD, ContentStream, ServiceFront
from gateway.features.batches.fronts.files import PATH as FILES
from gateway.features.batches.fronts.openai import too_many_batches
from gateway.features.batches.rows import BatchHolder, BatchSpec, StoredBatch, StoredFile, file_object, new_id
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import put_object
from gateway.features.batches.store import HIDDEN, TooMany
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath, Fields
from gateway.fronts.openai import require_json
from gateway.fronts.pages import limit_of, page_of, query_of
from gateway.fronts.paths import MESSAGE_BATCHES as PATH
from gateway.telemetry import Record
from policies.batches.states import ENDED, may_cancel

LONGEST_PAGE = 1000
MOST_BYTES = 256 * 1024 * 1024
"""Bytes of a batch."""
_ENDPOINT = "/v1/messages"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ONE = re.compile(rb"/v1/messages/batches/([A-Za-z0-9_-]{1,64})(/cancel|/results)?")
_UNKNOWN = (
    "Unknown path. For batches this gateway serves /v1/messages/batches, and below it /ID, /ID/cancel, /ID/results."
)
_encode = msgspec.json.Encoder().encode


class _Entry(msgspec.Struct):
    custom_id: Any = None
    params: Raw = Raw()


class _Params(msgspec.Struct):
    stream: Any = None


class _Create(msgspec.Struct):
    requests: list[_Entry]


def lines_of(body: bytes, most: int) -> bytes:
    """The requests of a body as lines of a batch. Raises `CallerError`."""
    check_json(body)
    try:
        requests = msgspec.json.decode(body, type=_Create).requests
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"requests: {error}.", param="requests") from None
    if not 0 < len(requests) <= most:
        raise CallerError(f"requests: from 1 to {most} requests are possible.", param="requests")
    seen, lines = set[str](), list[bytes]()
    for index, entry in enumerate(requests):
        at, custom_id = f"requests.{index}", entry.custom_id
        if not isinstance(custom_id, str) or not _ID.fullmatch(custom_id):
            raise CallerError(f"{at}.custom_id: 1 to 64 letters, digits, _ and -.", param=f"{at}.custom_id")
        if custom_id in seen:
            raise CallerError(f"{at}.custom_id: `{custom_id}` occurs twice.", param=f"{at}.custom_id")
        seen.add(custom_id)
        lines.append(_line(at, entry))
    return b"\n".join(lines) + b"\n"


def _line(at: str, entry: _Entry) -> bytes:
    try:
        params = msgspec.json.decode(entry.params, type=_Params)
    except decoding.MALFORMED_JSON:
        raise CallerError(f"{at}.params: an object is required.", param=f"{at}.params") from None
    if params.stream not in (None, False):
        raise CallerError(f"{at}.params.stream: a batch has no streams.", param=f"{at}.params.stream")
    params_text = bytes(entry.params)
    if b"\n" in params_text or b"\r" in params_text:
        params_text = _encode(msgspec.json.decode(params_text))
    line = {"custom_id": entry.custom_id, "method": "POST", "url": _ENDPOINT, "body": Raw(params_text)}
    return _encode(line)


class MessageBatchesFront(ServiceFront):
    """The handler of `/v1/messages/batches` and the paths below."""

    one = _ONE

    def __init__(self, door: Door, service: BatchService | None) -> None:
        super().__init__(door, service)
        self._all = DoorPath("/v1/messages/batches", self._answer)
        self._one = DoorPath("/v1/messages/batches/{id}", self._answer_one)
        self._cancel = DoorPath("/v1/messages/batches/{id}/cancel", self._cancelled)
        self._results = DoorPath("/v1/messages/batches/{id}/results", self._answer_results)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._all, self._one, self._cancel, self._results]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._all if http.target == PATH else None
        if (match := _ONE.fullmatch(http.target)) is not None:
            route = {None: self._one, b"/cancel": self._cancel, b"/results": self._results}[match[2]]
        return await self._door.serve(http, route, _UNKNOWN, _refusal, self._headers)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        if http.method == "POST":
            return self._respond(record, shown_message_batch(await self._created(principal, http)))
        service, query = self._open(), query_of(http.query)
        limit, after, before = limit_of(query, LONGEST_PAGE), query.get("after_id"), query.get("before_id")
        if after is not None and before is not None:
            raise CallerError("Give `after_id` or `before_id`.", param="before_id")
        stored = await service.query(lambda store: store.page(principal, "anthropic", limit + 1, after, before))
        if stored is not None and before is not None and len(stored) > limit:
            page = page_of([shown_message_batch(batch) for batch in stored[1:]], limit, before)
            return self._respond(record, {**page, "has_more": True})
        shown = None if stored is None else [shown_message_batch(batch) for batch in stored]
        return self._respond(record, page_of(shown, limit, after or before))

    async def _created(self, principal: Principal, http: Request) -> StoredBatch:
        require_json(http)
        service, body = self._open(), await http.read()
        most = service.config.max_lines * 2
        lines = await offload.parse(body, lines_of, body, most)
        now, window, retention = service.wall(), min(86400.0, service.config.window), service.config.retention
        id_, input_file = new_id("msgbatch_"), new_id("file-")
        file = StoredFile(
            input_file, principal.tenant, HIDDEN, f"{id_}.jsonl", len(lines), now, now + window + retention
        )
        await service.query(lambda store: store.check_room(file.tenant, file.bytes))
        await service.stored(lambda storage: put_object(storage, file_object(input_file), lines))
        spec = BatchSpec(
            id_, BatchHolder.of(principal), "anthropic", _ENDPOINT, input_file, new_id("file-"), new_id("file-"),
            "24h", now, now + window, None, retention,
        )  # fmt: skip
        standing = self._door.core.snapshot.standings.get(principal.tenant)
        active = 1 if standing is None else standing.batches.active
        try:
            await service.query(lambda store: store.add_file(file))
            batch = await service.query(lambda store: store.create(spec, active, spec.expires_at + retention))
        except (TooMany, StorageFull) as error:
            await self._delete_file(file.tenant, input_file)
            if isinstance(error, StorageFull):
                raise
            raise too_many_batches(active) from None
        service.created()
        return batch

    async def _answer_one(self, principal: Principal, http: Request, record: Record) -> Response:
        batch = await self._batch(principal, http)
        if http.method != "DELETE":
            return self._respond(record, shown_message_batch(batch))
        service, tenant, id_ = self._open(), principal.tenant, batch.spec.id
        if batch.progress.status not in ENDED:
            raise CallerError("A batch that has not ended cannot be deleted: cancel it first.")
        await service.query(lambda store: store.delete_batch(tenant, id_, "anthropic"))
        for file in (batch.spec.input_file, batch.spec.output_file):
            await self._delete_file(tenant, file)
        return self._respond(record, {"id": id_, "type": "message_batch_deleted"})

    async def _delete_file(self, tenant: str, id_: str) -> None:
        """The content first: a crash leaves none that is not counted."""
        service = self._open()
        await service.stored(lambda storage: storage.delete(file_object(id_)))
        await service.query(lambda store: store.delete_file(tenant, id_, 0.0))

    async def _cancelled(self, principal: Principal, http: Request, record: Record) -> Response:
        service, now = self._open(), self._open().wall()
        id_ = (await self._batch(principal, http)).spec.id
        batch = await service.query(lambda store: store.cancel(principal, id_, "anthropic", now))
        if batch is None:
            raise _no_batch(id_)
        if not may_cancel(batch.progress.status):
            raise CallerError("A batch that has ended cannot be cancelled.")
        service.created()
        return self._respond(record, shown_message_batch(batch))

    async def _answer_results(self, principal: Principal, http: Request, record: Record) -> Response:
        service, batch = self._open(), await self._batch(principal, http)
        if batch.progress.status not in ENDED:
            raise CallerError("The batch has not ended: its results are not available yet.")
        now = service.wall()
        file = await service.query(lambda store: store.file(principal, batch.spec.output_file, now))
        if file is None:
            raise NotFound("The batch has no results.", code="not_found")
        content = ContentStream(service, self._door.core, record, file)
        return Response(200, [("content-type", "application/binary"), *self._headers(record)], content)

    async def _batch(self, principal: Principal, http: Request) -> StoredBatch:
        service, id_ = self._open(), self._id(http)
        batch = await service.query(lambda store: store.batch(principal, id_, "anthropic"))
        if batch is None:
            raise _no_batch(id_)
        return batch

    def _respond(self, record: Record, value: Any) -> Response:
        self._door.core.end(record)
        return Response(200, [("content-type", "application/json"), *self._headers(record)], _encode(value))

    def _headers(self, record: Record) -> Fields:
        return [("request-id", record.request_id), *self._door.headers(record)]


def shown_message_batch(batch: StoredBatch) -> dict[str, Any]:
    """A batch in Anthropic's form."""
    spec, progress = batch.spec, batch.progress
    ended = progress.status in ENDED
    cancelled = "cancelling" in progress.times
    stopped = progress.unfinished if ended else 0
    processing = 0 if ended else max(progress.total - progress.succeeded - progress.failed, 0)
    counts = {
        "processing": processing,
        "succeeded": progress.succeeded,
        "errored": progress.failed,
        "canceled": stopped if cancelled else 0,
        "expired": 0 if cancelled else stopped,
    }
    status = "ended" if ended else "canceling" if cancelled else "in_progress"
    results = f"{PATH.decode()}/{spec.id}/results" if ended else None  # relative: a proxy may have another scheme
    return {
        "id": spec.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _time(spec.created_at),
        "expires_at": _time(spec.expires_at),
        "ended_at": _time(progress.times[progress.status]) if ended else None,
        "cancel_initiated_at": _time(progress.times["cancelling"]) if cancelled else None,
        "archived_at": None,
        "results_url": results,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _no_batch(id_: str) -> NotFound:
    return NotFound(f"There is no batch `{id_[:64]}`.", code="not_found")


def _refusal(error: InferenceError, headers: Fields) -> Response:
    return errors.anthropic_response(MESSAGES.of(error), headers)


def uploads_of(config: BatchesConfig) -> dict[bytes, int]:
    """The largest body of an upload by path; `http.max_body` does not bound it."""
    return {FILES: config.max_file + OVERHEAD, PATH: MOST_BYTES}
