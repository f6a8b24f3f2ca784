"""However the network cuts a stream, the same events come out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire import sse

LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12).map(str.encode)
EVENTS = st.lists(
    st.lists(st.sampled_from([b"data: ", b"data:", b"event: ", b": ", b""]).flatmap(lambda f: LINES.map(f.__add__))),
    max_size=6,
)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


def events_of(*pieces: bytes) -> list[bytes]:
    splitter = sse.Splitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


@st.composite
def cut(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """`stream` in pieces, as a network may deliver it."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(stream) - 1)), max_size=8)))
    edges = [0, *[p for p in places if p < len(stream)], len(stream)]
    return [stream[a:b] for a, b in pairwise(edges) if a < b]


@given(st.data(), EVENTS)
def test_any_newlines_and_any_cutting(data: st.DataObject, events: list[list[bytes]]) -> None:
    stream = b""
    for lines in events:
        for line in [*lines, b""]:
            newline = data.draw(NEWLINES)
            # A CR and an LF that meet are one newline: a line that has nothing between them is not written so.
            stream += line + (b"\r\n" if not line and stream.endswith(b"\r") and newline == b"\n" else newline)
    pieces = data.draw(cut(stream))
    expected = [line for lines in events for line in [*lines, b""]]
    assert _lines(events_of(*pieces)) == _lines(_reference(expected))
    assert events_of(*pieces) == events_of(stream) == events_of(*[bytes([b]) for b in stream])


def _reference(lines: list[bytes]) -> list[bytes]:
    """WHATWG HTML 9.2.6: an empty line ends the event that began before it, if one did."""
    decoded: list[bytes] = []
    event: list[bytes] = []
    for line in lines:
        if line:
            event.append(line)
        elif event:
            decoded.append(b"\n".join(event))
            event = []
    return decoded


def _lines(events: list[bytes]) -> list[list[bytes]]:
    return [event.split(b"\n") for event in events]


@given(st.data(), st.binary(max_size=200))
def test_any_bytes_and_any_cutting(data: st.DataObject, stream: bytes) -> None:
    assert events_of(*data.draw(cut(stream))) == events_of(stream)


@given(st.data(), st.text("\r\nad:", max_size=40).map(str.encode))
def test_any_newlines_at_all(data: st.DataObject, stream: bytes) -> None:
    assert events_of(*data.draw(cut(stream))) == events_of(stream)


@given(st.lists(LINES.filter(bool)))
def test_payloads_survive_encoding_and_decoding(payloads: list[bytes]) -> None:
    events = events_of(b"".join(sse.encode(payload) for payload in payloads))
    assert [sse.data_of(event) for event in events] == payloads


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a", b"a"),
        (b"data:a", b"a"),
        (b"data:  a", b" a"),
        (b"data:", b""),
        (b"data: a\ndata: b", b"a\nb"),
        (b"event: x\nid: 1\ndata: a", b"a"),
        (b"data: a\nretry: 5", b"a"),
        (b": comment", b""),
        (b"database: a", b""),
        (b"Data: a", b""),
        (b" data: a", b""),
        (b"data: a\n: comment\ndata:b", b"a\nb"),
    ],
)
def test_data_of(event: bytes, data: bytes) -> None:
    assert sse.data_of(event) == data


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r", b"\r\n\n", b"\n\r\n"])
def test_an_event_is_out_with_its_last_byte(end: bytes) -> None:
    splitter = sse.Splitter()
    assert splitter.feed(b"data: a" + end) == [b"data: a"]
    assert splitter.feed(b"data: b" + end) == [b"data: b"]


def test_a_newline_cut_in_two_ends_one_line() -> None:
    assert events_of(b"data: a\r", b"\ndata: b\r", b"\n", b"\r", b"\n") == [b"data: a\ndata: b"]


def test_an_event_that_does_not_end_is_bounded() -> None:
    splitter = sse.Splitter(1000)
    for _ in range(4):
        assert splitter.feed(b"a" * 250) == []
    with pytest.raises(sse.EventTooLarge):
        splitter.feed(b"a")


def test_the_pieces_of_a_large_event_are_joined_once() -> None:
    """20 MiB in pieces of a read: joining them at each piece would copy 3 GiB."""
    splitter, piece = sse.Splitter(), b"a" * 65536
    assert not any(splitter.feed(piece) for _ in range(320))
    (event,) = splitter.feed(b"\n\n")
    assert len(event) == 320 * len(piece)
