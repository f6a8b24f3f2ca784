"""AWS's event stream: frames equal those of botocore, wherever the network cuts them, and no damaged byte passes."""

from itertools import pairwise
from struct import pack
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.bedrock import event_stream
from adapters.wire.bedrock.event_stream import BrokenFrame, FrameSplitter, StreamFrame

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=9).map(":".__add__)
FRAMES = st.tuples(st.dictionaries(NAMES, st.text(max_size=20), max_size=4), st.binary(max_size=40))


def encoded(frames: list[tuple[dict[str, str], bytes]]) -> bytes:
    return b"".join([event_stream.encode(headers, payload) for headers, payload in frames])


@given(st.lists(FRAMES, min_size=1, max_size=5), st.data())
def test_any_cutting_gives_the_frames_that_were_encoded(
    frames: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    stream = encoded(frames)
    cuts = data.draw(st.sets(st.integers(0, len(stream)), max_size=9))
    splitter = FrameSplitter()
    read = [frame for a, b in pairwise(sorted({0, *cuts, len(stream)})) for frame in splitter.feed(stream[a:b])]
    assert [(dict(frame.headers), frame.payload) for frame in read] == frames
    assert not splitter.halfway


@given(st.lists(FRAMES, min_size=1, max_size=4))
def test_botocore_reads_our_frames(frames: list[tuple[dict[str, str], bytes]]) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(encoded(frames))
    assert [(message.headers, message.payload) for message in buffer] == frames


@given(FRAMES, st.data())
def test_no_damaged_byte_passes(frame: tuple[dict[str, str], bytes], data: st.DataObject) -> None:
    """A damaged length may make the splitter wait for more, but its own checksum refuses it first."""
    stream = bytearray(encoded([frame]))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BrokenFrame):
        list(FrameSplitter().feed(bytes(stream)))


def test_headers_of_all_types_are_skipped_and_texts_read() -> None:
    values = [
        b"\x00", b"\x01", b"\x02\x7f", b"\x03\x00\x01", b"\x04" + b"\0" * 4, b"\x05" + b"\0" * 8, b"\x06\x00\x02ab",
        b"\x08" + b"\0" * 8, b"\x09" + b"\0" * 16,
    ]  # fmt: skip
    raw = b"".join([b"\x01" + bytes((65 + i,)) + value for i, value in enumerate(values)]) + b"\x02:k\x07\x00\x01v"
    assert list(FrameSplitter().feed(_with_headers(raw))) == [StreamFrame({":k": "v"}, b"{}")]


@pytest.mark.parametrize(
    "headers",
    [b"\x01a\x07\x00\x05v", b"\x01a\x0b", b"\x01a", b"\x00\x00", b"\x01a\x00\x01a\x00", b"\x01a\x07\x00\x01\xff"],
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    with pytest.raises(BrokenFrame):
        list(FrameSplitter().feed(_with_headers(headers)))


def test_a_frame_above_the_bound_is_refused_before_it_has_arrived() -> None:
    stream = event_stream.encode({}, b"x" * 100)
    with pytest.raises(BrokenFrame, match="exceeds 64 bytes"):
        list(FrameSplitter(64).feed(stream[:12]))


def _with_headers(raw: bytes) -> bytes:
    """A frame with these encoded headers, made by the rules of the format."""
    lengths = pack(">II", len(raw) + 2 + 16, len(raw))
    frame = lengths + pack(">I", crc32(lengths)) + raw + b"{}"
    return frame + pack(">I", crc32(frame))
