"""Messages that arrive in any pieces."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.http2.inbox import PREFIX, VIEW_BYTES, Compressed, Inbox, inflate
from adapters.http2.status import Code, GrpcError


def framed(message: bytes, flag: int = 0) -> bytes:
    return PREFIX.pack(flag, len(message)) + message


sizes = st.one_of(st.integers(0, 40), st.integers(VIEW_BYTES - 10, VIEW_BYTES * 3))


@settings(max_examples=80, deadline=None)
@given(st.data(), st.lists(st.tuples(sizes, st.booleans()), max_size=6))
def test_any_cut_gives_the_same_messages(data: st.DataObject, sizes_and_flags: list[tuple[int, bool]]) -> None:
    messages = [bytes([i + 1]) * size for i, (size, _) in enumerate(sizes_and_flags)]
    wire = b"".join(framed(m, int(squeezed)) for m, (_, squeezed) in zip(messages, sizes_and_flags, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    inbox = Inbox(VIEW_BYTES * 3)
    for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        around = b"??" + wire[start:stop] + b"!!!"
        inbox.feed(around, 2, len(around) - 3)
    expected = [Compressed(m) if squeezed else m for m, (_, squeezed) in zip(messages, sizes_and_flags, strict=True)]
    assert list(inbox.messages) == expected
    assert not inbox.halfway
    assert inbox.arrived == 0


@pytest.mark.parametrize("size", [1, 4, 5, 6, 14])
def test_a_message_that_is_not_whole(size: int) -> None:
    inbox = Inbox(100)
    inbox.feed(framed(b"0123456789"), 0, size)
    assert inbox.halfway
    assert inbox.arrived == max(0, size - 5)
    assert not inbox.messages


def test_a_malformed_message_is_refused() -> None:
    with pytest.raises(GrpcError) as caught:
        Inbox(100).feed(framed(b"x", flag=2), 0, 6)
    assert caught.value.code == Code.INTERNAL


def test_a_length_over_the_limit_is_refused_before_the_message() -> None:
    with pytest.raises(GrpcError) as caught:
        Inbox(100).feed(PREFIX.pack(0, 2**32 - 1), 0, 5)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("encoding", "squeeze"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_inflating(encoding: bytes, squeeze: Callable[[bytes], bytes]) -> None:
    message = b"abc" * 1000
    assert inflate(squeeze(message), encoding, 3000) == message
    assert inflate(squeeze(b""), encoding, 0) == b""
    for limit, data, code in [
        (2999, squeeze(message), Code.RESOURCE_EXHAUSTED),
        (3000, squeeze(message)[:-1], Code.INTERNAL),
        (3000, squeeze(message)[: len(squeeze(message)) // 2], Code.INTERNAL),
        (3000, b"nothing of the kind", Code.INTERNAL),
        (3000, b"", Code.INTERNAL),
    ]:
        with pytest.raises(GrpcError) as caught:
            inflate(data, encoding, limit)
        assert caught.value.code == code


def test_a_bomb_is_not_inflated() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    with pytest.raises(GrpcError) as caught:
        inflate(bomb, b"gzip", 100_000)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


def test_compressed_in_a_call_without_compression() -> None:
    for encoding in (b"identity", b"", b"snappy"):
        with pytest.raises(GrpcError) as caught:
            inflate(b"x", encoding, 100)
        assert caught.value.code == Code.INTERNAL
