"""The content of a stored file as the body of a response."""

from functools import partial

from gateway.features.batches.rows import file_object
from gateway.features.batches.service import BatchService
from gateway.request.core import Core
from gateway.telemetry import Record

PIECE = 256 * 1024


class ContentStream:
    """The bytes of a file in pieces. The end of the body is the end of the exchange."""

    def __init__(self, service: BatchService, core: Core, record: Record, id_: str, size: int) -> None:
        self._service = service
        self._core = core
        self._record = record
        self._name = file_object(id_)
        self._at = 0
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __aiter__(self) -> "ContentStream":
        return self

    async def __anext__(self) -> bytes:
        if self._at >= self._size:
            raise StopAsyncIteration
        at, length = self._at, min(PIECE, self._size - self._at)
        piece = await self._service.stored(lambda storage: storage.read(self._name, at, length))
        if not piece:
            raise _shorter(self._size)
        self._at += len(piece)
        return piece

    async def aclose(self) -> None:
        self._core.end(self._record)


_shorter = partial(EOFError, "a stored file is shorter than its row")
