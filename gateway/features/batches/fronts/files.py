"""`/v1/files`: OpenAI's files, which are streamed to the storage."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from adapters.errors import CallerError, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.decoding import whole_number
from gateway.auth.keys import Principal
from gateway.features.batches.rows import RESULTS, StoredFile, file_object, new_id
from gateway.features.batches.sealing import BEGIN
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import Storage, StorageWriter
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.pages import is_ascending, limit_of, page_of, query_of
from gateway.request.core import Core
from gateway.telemetry import Record

MAX_FIELD = 4096
MAX_FIELDS = 32
MAX_HEAD = 16 * 1024
LONGEST_NAME = 255
_HARMFUL = re.compile(r"[\x00-\x1f\x7f]")
PIECE = 256 * 1024
_shorter = partial(EOFError, "a stored file is shorter than its row")
PATH = b"/v1/files"
PURPOSES = ("batch", "assistants", "evals", "fine-tune", "user_data", "vision")
OVERHEAD = 64 * 1024
"""Bytes of a form beside its file."""
SHORTEST, LONGEST_PAGE = 3600, 10_000
WRITTEN = 1024 * 1024
"""Bytes that are written to the storage at once."""
_ONE = re.compile(rb"/v1/files/([A-Za-z0-9_-]{1,64})(/content)?")
_UNKNOWN = "Unknown path. For files this gateway serves /v1/files, /v1/files/ID and /v1/files/ID/content."
_encode = msgspec.json.Encoder().encode


class UploadForm:
    """`feed` the pieces of the body, each of which returns bytes of the file, then `finish`."""

    def __init__(self, content_type: str, file_field: str = "file") -> None:
        """Raises `CallerError` for a body that is no form."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            message = "Send the file as `multipart/form-data` with the fields `file` and `purpose`."
            raise CallerError(message, code="unsupported_media_type")
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        """The name of the file, without folders; None before the file has begun."""
        self._file_field = file_field
        self._file = list[bytes]()
        self._name = ""
        self._value = bytearray()
        self._header = [bytearray(), bytearray()]
        self._head_size = 0
        self._in_file = False
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begins,
                "on_header_field": lambda data, start, end: self._take_header(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._take_header(1, data[start:end]),
                "on_header_end": self._header_ends,
                "on_part_data": self._take_data,
                "on_part_end": self._part_ends,
                "on_end": self._end,
            },
        )

    def feed(self, piece: bytes) -> bytes:
        """Parse a piece of the body. Raises `CallerError`."""
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _malformed(str(error)) from None
        data, self._file = b"".join(self._file), []
        return data

    def finish(self) -> Mapping[str, str]:
        """The fields of a form that is whole and has a file. Raises `CallerError`."""
        if not self._ended:
            raise _malformed("it has no end")
        if self.filename is None:
            raise CallerError("The form has no field `file`.", param="file")
        return self.fields

    # ── events of the parser ──────────────────────────────────────────────────────────────────────────

    def _part_begins(self) -> None:
        self._name, self._value, self._in_file = "", bytearray(), False
        self._header, self._head_size = [bytearray(), bytearray()], 0

    def _take_header(self, part: int, data: bytes) -> None:
        self._head_size += len(data)
        if self._head_size > MAX_HEAD:
            raise _malformed("the head of a part is too long")
        self._header[part] += data

    def _header_ends(self) -> None:
        name, value = bytes(self._header[0]).lower(), bytes(self._header[1])
        self._header = [bytearray(), bytearray()]
        if name != b"content-disposition":
            return
        _, options = parse_options_header(value)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if self._name == self._file_field:
            if self.filename is not None:
                raise CallerError("The form has more than one file: upload each alone.", param=self._file_field)
            self._in_file = True
            self.filename = file_name(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._file.append(data[start:end])
        elif len(self._value) + end - start > MAX_FIELD:
            raise CallerError(f"The field `{self._name[:64]}` is too long.", param=self._name[:64])
        else:
            self._value += data[start:end]

    def _part_ends(self) -> None:
        if self._in_file:
            return
        if len(self.fields) >= MAX_FIELDS:
            raise _malformed("it has too many fields")
        self.fields[self._name] = self._value.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True


def file_name(text: str) -> str:
    """The last part of a path, without control characters. No file of the storage has this name."""
    name = _HARMFUL.sub("", re.split(r"[/\\]", text)[-1])[:LONGEST_NAME]
    return name if name.strip(". ") else "file"


def _malformed(reason: str) -> CallerError:
    return CallerError(f"The form is malformed: {reason}.", code="malformed_request")


class ContentStream:
    """The bytes of a file in pieces. The end of the body is the end of the exchange.

    Lines of results that are sealed are opened, and the size of such a file counts them open.
    """

    def __init__(self, service: BatchService, core: Core, record: Record, file: StoredFile) -> None:
        self._service = service
        self._core = core
        self._record = record
        self._file = file
        self._has_lines = file.purpose == RESULTS
        self._rest = b""
        """The begin of a line whose end is not read yet."""
        self._at = 0
        self._sent = 0

    def __len__(self) -> int:
        return self._file.bytes

    def __aiter__(self) -> "ContentStream":
        return self

    async def __anext__(self) -> bytes:
        name, size = file_object(self._file.id), self._file.bytes
        while self._sent < size:
            at, length = self._at, PIECE if self._has_lines else min(PIECE, size - self._at)
            piece = await self._service.stored(lambda storage: storage.read(name, at, length))  # noqa: B023
            if not piece:
                raise _shorter(size)
            self._at += len(piece)
            if out := await self._opened(piece) if self._has_lines else piece:
                self._sent += len(out)
                return out
        raise StopAsyncIteration

    async def _opened(self, piece: bytes) -> bytes:
        """The whole lines up to the end of a piece. Raises `BrokenSeal`, which breaks the connection."""
        end = piece.rfind(b"\n") + 1
        lines, self._rest = (self._rest + piece[:end], piece[end:]) if end else (b"", self._rest + piece)
        if BEGIN not in lines:
            return lines
        seals, file = self._service.seals, self._file
        return await self._service.in_thread(lambda: seals.opened_lines(file.tenant, file.id, lines))

    async def aclose(self) -> None:
        self._core.end(self._record)


class ServiceFront:
    """The handler of a path of files or batches, and of the paths below. Without a service there are none."""

    one: ClassVar[re.Pattern[bytes]]
    """The path of one object; the first group is its id."""
    disabled: ClassVar[str] = "batches_disabled"
    reason: ClassVar[str] = "This gateway runs no batches: its configuration has no section `batches`."

    def __init__(self, door: Door, service: BatchService | None) -> None:
        self._door = door
        self._service = service

    def _id(self, http: Request) -> str:
        """The id in the path of one object."""
        match = self.one.fullmatch(http.target)
        assert match is not None
        return match[1].decode()

    def _open(self) -> BatchService:
        if self._service is None:
            raise NotFound(self.reason, code=self.disabled)
        return self._service


class FilesFront(ServiceFront):
    """The handler of `/v1/files` and the paths below."""

    one = _ONE
    disabled = "files_disabled"
    reason = "This gateway stores no files: its configuration has no section `batches`."

    def __init__(self, door: Door, service: BatchService | None) -> None:
        super().__init__(door, service)
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
        content = ContentStream(service, self._door.core, record, file)
        fields = [
            ("content-type", "application/octet-stream"),
            ("content-disposition", "attachment"),
            ("x-content-type-options", "nosniff"),
            *self._door.headers(record),
        ]
        return Response(200, fields, content)

    async def _file(self, principal: Principal, http: Request) -> StoredFile:
        service, id_ = self._open(), self._id(http)
        now = service.wall()
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
