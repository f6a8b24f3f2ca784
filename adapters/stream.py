"""`Stream`, an answer in pieces: the one place where streams begin, end, fail and are cancelled."""

import asyncio
from typing import Self

from adapters.base import Answer
from adapters.cut import survived
from adapters.types import OPENAI, Form, Usage


class Stream(Answer):
    """An answer in pieces. A subclass reads its source in `_next` and releases it in `_drop`."""

    __slots__ = ("_first", "_is_released")

    def __init__(self, *, content_type: str, usage: Usage, status: int = 200, form: Form = OPENAI) -> None:
        super().__init__(content_type=content_type, body=None, usage=usage, status=status, form=form)
        self._first: bytes | None = None
        self._is_released = False
        """Whether the source is released after a whole answer."""

    async def _next(self, patience: float | None = None) -> bytes:
        """Return the next piece and count its cost in `usage`. Raises `StopAsyncIteration` at the end.

        `patience` limits the wait for the first piece, if the source does not limit the wait itself.
        """
        raise NotImplementedError

    async def _drop(self) -> None:
        """Release the source. Runs at every end, perhaps more than once."""

    async def _finish(self) -> None:
        """Release the source after the last piece."""
        await self._drop()

    async def begun(self, patience: float | None = None) -> Self:
        """Wait for the first piece or the end. A failure here permits a retry at another endpoint."""
        try:
            self._first = await self._next(patience)
        except StopAsyncIteration:
            self.end(None)
            await self._finish()
            self._is_released = True
        except BaseException:
            await self._drop()
            raise
        return self

    async def __anext__(self) -> bytes:
        if self.ended:
            raise StopAsyncIteration
        piece, self._first = self._first, None
        if piece is not None:
            return piece
        try:
            return await self._next()
        except StopAsyncIteration:
            self.end(None)
            await self._finish()
            self._is_released = True
            raise
        except asyncio.CancelledError as error:
            if (cut := survived()) is None:
                await self._fail(error)
                raise
            await self._fail(cut)
            raise cut from None
        except BaseException as error:
            await self._fail(error)
            raise

    async def _fail(self, error: BaseException) -> None:
        try:
            await self._drop()
        finally:
            self.end(error)

    async def aclose(self) -> None:
        if self._is_released:
            return
        try:
            await self._drop()
        finally:
            await super().aclose()


class DerivedStream(Stream):
    """A stream made of the pieces of another answer, whose pool, endpoint and usage it has. It closes that answer."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Answer, *, content_type: str = "", form: Form | None = None) -> None:
        """`content_type` and `form` are those of the inner answer unless they are given."""
        content_type, form = content_type or inner.content_type, form or inner.form
        super().__init__(content_type=content_type, usage=inner.usage, status=inner.status, form=form)
        self.pool, self.endpoint, self.headers = inner.pool, inner.endpoint, inner.headers
        self._inner = inner
        inner.when_ended(self._take_usage)

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = inner.usage

    async def _drop(self) -> None:
        await self._inner.aclose()


class OnePiece(Stream):
    """A stream of one piece, which exists already."""

    __slots__ = ("_piece",)

    def __init__(self, piece: bytes, *, content_type: str, usage: Usage, form: Form) -> None:
        super().__init__(content_type=content_type, usage=usage, form=form)
        self._piece = piece

    async def _next(self, patience: float | None = None) -> bytes:
        if not self._piece:
            raise StopAsyncIteration
        piece, self._piece = self._piece, b""
        return piece
