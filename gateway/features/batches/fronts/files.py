"""`/v1/files`: OpenAI's files, which are streamed to the storage."""

import re
from typing import Any

import msgspec

from adapters.errors import CallerError, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.decoding import whole_number
from gateway.auth.keys import Principal
from gateway.features.batches.fronts.content import ContentStream
from gateway.features.batches.fronts.form import UploadForm
from gateway.features.batches.fronts.pages import is_ascending, limit_of, page_of, query_of
from gateway.features.batches.rows import StoredFile, file_object, new_id
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import Storage, StorageWriter
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.telemetry import Record

PATH = b"/v1/files"
PURPOSES = ("batch", "assistants", "evals", "fine-tune", "user_data", "vision")
OVERHEAD = 64 * 1024
"""Bytes of a form beside its file."""
SHORTEST, LONGEST_PAGE = 3600, 10_000
WRITTEN = 1024 * 1024
"""Bytes that are written to the storage at once."""
_ONE = re.compile(rb"/v1/files/([A-Za-z0-9_-]{1,64})(/content)?")
_UNKNOWN = "Unknown path. For files this gateway serves /v1/files, /v1/files/ID and /v1/files/ID/content."
_NONE = "This gateway stores no files: its configuration has no section `batches`."
_encode = msgspec.json.Encoder().encode


class FilesFront:
    """The handler of `/v1/files` and the paths below. Without a service there are no files."""

    def __init__(self, door: Door, service: BatchService | None) -> None:
        self._door = door
        self._service = service
        self._all = DoorPath("/v1/files", self._answer)
        self._one = DoorPath("/v1/files/{id}", self._answer_one)
        self._content = DoorPath("/v1/files/{id}/content", self._answer_content)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._all, self._one, self._content]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._all if http.target == PATH else None
        if (match := _ONE.fullmatch(http.target)) is not None:
            route = self._content if match[2] else self._one
        return await self._door.serve(http, route, _UNKNOWN, errors.openai_response)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        if http.method == "POST":
            return self._door.respond(record, _encode(await self._uploaded(principal, http)))
        service, query = self._open(), query_of(http.query)
        limit, ascending = limit_of(query, LONGEST_PAGE, LONGEST_PAGE), is_ascending(query)
        purpose, after, now = query.get("purpose"), query.get("after"), service.wall()
        page = await service.query(
            lambda store: store.file_page(principal, purpose, after, limit + 1, now, ascending=ascending)
        )
        shown = None if page is None else [shown_file(file) for file in page]
        return self._door.respond(record, _encode(page_of(shown, limit, after, object="list")))

    async def _answer_one(self, principal: Principal, http: Request, record: Record) -> Response:
        service, file = self._open(), await self._file(principal, http)
        if http.method != "DELETE":
            return self._door.respond(record, _encode(shown_file(file)))
        tenant, id_, now = file.tenant, file.id, service.wall()
        await service.stored(lambda storage: storage.delete(file_object(id_)))  # a crash leaves no content uncounted
        await service.query(lambda store: store.delete_file(tenant, id_, now))
        return self._door.respond(record, _encode({"id": id_, "object": "file", "deleted": True}))

    async def _answer_content(self, principal: Principal, http: Request, record: Record) -> Response:
        service, file = self._open(), await self._file(principal, http)
        content = ContentStream(service, self._door.core, record, file.id, file.bytes)
        fields = [
            ("content-type", "application/octet-stream"),
            ("content-disposition", "attachment"),
            ("x-content-type-options", "nosniff"),
            *self._door.headers(record),
        ]
        return Response(200, fields, content)

    async def _file(self, principal: Principal, http: Request) -> StoredFile:
        match, service = _ONE.fullmatch(http.target), self._open()
        assert match is not None
        id_, now = match[1].decode(), service.wall()
        file = await service.query(lambda store: store.file(principal, id_, now))
        if file is None:
            raise no_file(id_)
        return file

    # ── uploads ───────────────────────────────────────────────────────────────────────────────────────

    async def _uploaded(self, principal: Principal, http: Request) -> dict[str, Any]:
        service, form = self._open(), UploadForm(http.headers.get("content-type") or "")
        id_, tenant = new_id("file-"), principal.tenant
        await service.query(lambda store: store.check_room(tenant, http.length))
        writer = await service.stored(lambda storage: storage.create(file_object(id_)))
        try:
            size = await self._receive(http, form, writer)
            file = self._row(principal, form, id_, size)
            await service.in_thread(writer.commit)
            try:
                await service.query(lambda store: store.add_file(file))
            except BaseException:
                await service.stored(lambda storage: _discard(storage, id_))
                raise
        finally:
            await service.in_thread(lambda: writer.__exit__(None, None, None))
        return shown_file(file)

    async def _receive(self, http: Request, form: UploadForm, writer: StorageWriter) -> int:
        """Write the content of the file as it arrives. Returns its size."""
        service, size = self._open(), 0
        waiting = bytearray()
        async for piece in http.pieces():
            data = form.feed(piece)
            size += len(data)
            waiting += data
            if len(waiting) >= WRITTEN:
                full, waiting = bytes(waiting), bytearray()
                await service.in_thread(lambda full=full: writer.write(full))  # type: ignore[misc]
        rest = bytes(waiting)
        await service.in_thread(lambda: writer.write(rest))
        form.finish()
        return size

    def _row(self, principal: Principal, form: UploadForm, id_: str, size: int) -> StoredFile:
        """Raises `CallerError` for fields that are not valid."""
        fields, service = form.finish(), self._open()
        purpose = fields.get("purpose")
        if purpose not in PURPOSES:
            raise CallerError(f"`purpose` is one of {', '.join(PURPOSES)}.", param="purpose")
        if not size:
            raise CallerError("The file is empty.", param="file", code="empty_file")
        now, lifetime = service.wall(), service.config.retention
        if "expires_after[seconds]" in fields or "expires_after[anchor]" in fields:
            anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]", "")
            lifetime = lifetime_of(anchor, whole_number(seconds), lifetime)
        return StoredFile(id_, principal.tenant, purpose, form.filename or "file", size, now, now + lifetime)

    def _open(self) -> BatchService:
        if self._service is None:
            raise NotFound(_NONE, code="files_disabled")
        return self._service


def lifetime_of(anchor: object, seconds: object, longest: float) -> float:
    """Seconds of an `expires_after`. Raises `CallerError`."""
    if anchor != "created_at" or not isinstance(seconds, int) or not SHORTEST <= seconds <= longest:
        message = f"`expires_after` has the anchor `created_at` and from {SHORTEST} to {longest:.0f} seconds."
        raise CallerError(message, param="expires_after")
    return float(seconds)


def shown_file(file: StoredFile) -> dict[str, Any]:
    """A file in OpenAI's form."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def no_file(id_: str) -> NotFound:
    """The error for a file that does not exist, or that another tenant has."""
    return NotFound(f"No such File object: {id_[:64]}", param="id", code="file_not_found")


def _discard(storage: Storage, id_: str) -> None:
    storage.delete(file_object(id_))
