"""`/v1/batches`: OpenAI's batches."""

import re
from typing import Any

import msgspec

from adapters.errors import CallerError, LimitExceeded, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.body import open_body
from adapters.wire.decoding import is_id
from adapters.wire.responses.stored_items import metadata_of
from gateway.auth.keys import Principal
from gateway.features.batches.fronts.files import ServiceFront, lifetime_of, no_file
from gateway.features.batches.rows import BatchHolder, BatchSpec, StoredBatch, new_id
from gateway.features.batches.service import BatchService
from gateway.features.batches.store import TooMany
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.fronts.pages import limit_of, page_of, query_of
from gateway.fronts.paths import BATCHES as PATH
from gateway.telemetry import Record
from policies.batches.lines import ENDPOINTS, is_endpoint
from policies.batches.states import BatchProgress, may_cancel, window_of

LONGEST_PAGE = 100
_ONE = re.compile(rb"/v1/batches/([A-Za-z0-9_-]{1,64})(/cancel)?")
_UNKNOWN = "Unknown path. For batches this gateway serves /v1/batches, /v1/batches/ID and /v1/batches/ID/cancel."
_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
_encode = msgspec.json.Encoder().encode


class _Lifetime(msgspec.Struct):
    anchor: Any = None
    seconds: Any = None


class _Create(msgspec.Struct):
    input_file_id: Any = None
    endpoint: Any = None
    completion_window: Any = None
    output_expires_after: _Lifetime | None = None


class BatchesFront(ServiceFront):
    """The handler of `/v1/batches` and the paths below."""

    one = _ONE

    def __init__(self, door: Door, service: BatchService | None) -> None:
        super().__init__(door, service)
        self._all = DoorPath("/v1/batches", self._answer)
        self._one = DoorPath("/v1/batches/{id}", self._answer_one)
        self._cancel = DoorPath("/v1/batches/{id}/cancel", self._cancelled)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._all, self._one, self._cancel]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._all if http.target == PATH else None
        if (match := _ONE.fullmatch(http.target)) is not None:
            route = self._cancel if match[2] else self._one
        return await self._door.serve(http, route, _UNKNOWN, errors.openai_response)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        service = self._open()
        if http.method == "POST":
            return self._door.respond(record, _encode(shown_batch(await self._created(principal, http))))
        query = query_of(http.query)
        limit, after = limit_of(query, LONGEST_PAGE), query.get("after")
        page = await service.query(lambda store: store.page(principal, "openai", limit + 1, after))
        shown = None if page is None else [shown_batch(batch) for batch in page]
        return self._door.respond(record, _encode(page_of(shown, limit, after, object="list")))

    async def _created(self, principal: Principal, http: Request) -> StoredBatch:
        require_json(http)
        service, body = self._open(), await http.read()
        spec = await self._spec(principal, body)
        standing = self._door.core.snapshot.standings.get(principal.tenant)
        most = 1 if standing is None else standing.batches.active
        delete_at = spec.expires_at + service.config.retention
        try:
            batch = await service.query(lambda store: store.create(spec, most, delete_at))
        except TooMany:
            raise too_many_batches(most) from None
        service.created()
        return batch

    async def _spec(self, principal: Principal, body: bytes) -> BatchSpec:
        """Raises `CallerError` and `NotFound`."""
        service, fields = self._open(), open_body(body)
        metadata = metadata_of(fields.get("metadata"))
        try:
            given_fields = msgspec.json.decode(body, type=_Create)
        except msgspec.DecodeError as error:
            raise CallerError(f"The body is not valid: {error}.", code="invalid_request") from None
        endpoint = given_fields.endpoint
        if not isinstance(endpoint, str) or not is_endpoint(endpoint):
            names = ", ".join(sorted(ENDPOINTS - {"/v1/messages"}))
            raise CallerError(f"`endpoint` is one of {names}, or /v2/models/NAME/infer.", param="endpoint")
        seconds = window_of(given_fields.completion_window, service.config.window)
        if seconds is None:
            message = f"`completion_window` is 24h, or a shorter one such as 30m, of at most {service.config.window} s."
            raise CallerError(message, param="completion_window")
        lifetime, longest = service.config.retention, service.config.retention
        if (given := given_fields.output_expires_after) is not None:
            lifetime = lifetime_of(given.anchor, given.seconds, longest)
        now, file = service.wall(), await self._input(principal, given_fields.input_file_id)
        return BatchSpec(
            new_id("batch_"), BatchHolder.of(principal), "openai", endpoint, file, new_id("file-"), new_id("file-"),
            str(given_fields.completion_window), now, now + seconds, metadata or None, lifetime,
        )  # fmt: skip

    async def _input(self, principal: Principal, id_: object) -> str:
        """The id of the input file. Raises `CallerError` and `NotFound`."""
        service = self._open()
        if not isinstance(id_, str) or not is_id(id_):
            raise CallerError("`input_file_id` is the id of an uploaded file.", param="input_file_id")
        now = service.wall()
        file = await service.query(lambda store: store.file(principal, id_, now))
        if file is None:
            raise no_file(id_)
        if file.purpose != "batch":
            message = f"The file has the purpose `{file.purpose}`: upload it with `batch`."
            raise CallerError(message, param="input_file_id", code="invalid_file_purpose")
        return file.id

    async def _answer_one(self, principal: Principal, http: Request, record: Record) -> Response:
        id_ = self._id(http)
        batch = await self._open().query(lambda store: store.batch(principal, id_, "openai"))
        if batch is None:
            raise _no_batch(id_)
        return self._door.respond(record, _encode(shown_batch(batch)))

    async def _cancelled(self, principal: Principal, http: Request, record: Record) -> Response:
        service, id_ = self._open(), self._id(http)
        now = service.wall()
        batch = await service.query(lambda store: store.cancel(principal, id_, "openai", now))
        if batch is None:
            raise _no_batch(id_)
        if not may_cancel(batch.progress.status):
            message = f"A batch that is {batch.progress.status} cannot be cancelled."
            raise CallerError(message, code="invalid_batch_status")
        service.created()
        return self._door.respond(record, _encode(shown_batch(batch)))


def too_many_batches(most: int) -> LimitExceeded:
    """The error for a tenant that may create no further batch now."""
    message = f"This tenant has {most} unfinished batches, its limit: wait until one has ended."
    return LimitExceeded(message, limit="batches", retry_after=60.0)


def _no_batch(id_: str) -> NotFound:
    return NotFound(f"No batch with id '{id_[:64]}'.", code="batch_not_found")


def shown_batch(batch: StoredBatch) -> dict[str, Any]:
    """A batch in OpenAI's form."""
    spec, progress = batch.spec, batch.progress
    times = {f"{name}_at": int(progress.times[name]) if name in progress.times else None for name in _TIMES}
    ended = progress.status in ("completed", "expired", "cancelled")
    failed = progress.failed + progress.unfinished
    problems = {"object": "list", "data": progress.problems} if progress.problems else None
    return {
        "id": spec.id,
        "object": "batch",
        "endpoint": spec.endpoint,
        "errors": problems,
        "input_file_id": spec.input_file,
        "completion_window": spec.window,
        "status": progress.status,
        "output_file_id": spec.output_file if ended and progress.succeeded else None,
        "error_file_id": spec.error_file if ended and failed else None,
        "created_at": int(spec.created_at),
        "expires_at": int(spec.expires_at),
        **times,
        "request_counts": {"total": progress.total, "completed": progress.succeeded, "failed": failed},
        "usage": _usage(progress),
        "metadata": spec.metadata,
    }


def _usage(progress: BatchProgress) -> dict[str, Any]:
    total = progress.prompt_tokens + progress.completion_tokens
    return {
        "input_tokens": progress.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": progress.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total,
    }
