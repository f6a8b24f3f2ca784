"""Every stream begins, ends, fails and is cancelled in the same way."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, ClientGone, InferenceError
from adapters.stream import OnePiece, Stream
from adapters.types import OPENAI, Usage

Failure = InferenceError | asyncio.CancelledError


class _Scripted(Stream):
    def __init__(self, steps: list[bytes | Failure]) -> None:
        super().__init__(content_type="text/plain", usage=Usage())
        self.steps = list(steps)
        self.drops = 0
        self.ends: list[BaseException | None] = []
        self.when_ended(lambda _, error: self.ends.append(error))

    async def _next(self, patience: float | None = None) -> bytes:
        if not self.steps:
            raise StopAsyncIteration
        step = self.steps.pop(0)
        if isinstance(step, bytes):
            return step
        raise step

    async def _drop(self) -> None:
        self.drops += 1


@given(
    pieces=st.lists(st.binary(max_size=3), max_size=4),
    failure=st.sampled_from([None, BackendError("broken"), asyncio.CancelledError()]),
    reads=st.integers(0, 6),
    begins=st.booleans(),
)
async def test_a_stream_delivers_its_pieces_and_ends_once(
    pieces: list[bytes], failure: Failure | None, reads: int, begins: bool
) -> None:
    stream = _Scripted([*pieces, *([failure] if failure is not None else [])])
    if begins and not pieces and failure is not None:
        with pytest.raises(type(failure)):
            await stream.begun()
        assert stream.drops == 1
        assert not stream.ended, "a call that raises has no answer"
        return
    if begins:
        await stream.begun(1.0)
    delivered: list[bytes] = []
    error: BaseException | None = None
    for _ in range(reads):
        try:
            delivered.append(await anext(stream))
        except (StopAsyncIteration, InferenceError, asyncio.CancelledError) as end:
            error = end
            break
    assert delivered == pieces[:reads]
    if reads > len(pieces):
        assert isinstance(error, StopAsyncIteration if failure is None else type(failure))
    await stream.aclose()
    assert stream.drops, "every end releases the source"
    assert len(stream.ends) == 1
    over = reads > len(pieces) or (begins and not pieces)
    expected = type(failure) if over else ClientGone
    assert isinstance(stream.ends[0], expected) or (over and failure is None and stream.ends[0] is None)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_error_while_the_source_is_released_does_not_hide_the_end() -> None:
    class Stuck(_Scripted):
        async def _drop(self) -> None:
            raise OSError

    stream = Stuck([BackendError("broken")])
    with pytest.raises(OSError):
        await anext(stream)
    assert isinstance(stream.error, BackendError)


async def test_a_stream_of_one_piece_ends_after_it() -> None:
    stream = OnePiece(b"whole", content_type="text/plain", usage=Usage(), form=OPENAI)
    assert [piece async for piece in stream] == [b"whole"]
    assert stream.ended
