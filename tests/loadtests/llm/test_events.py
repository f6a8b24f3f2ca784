"""From what a connection gave to an answer: whatever the reads and the chunks were cut into."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.llm.events import BadAnswer, Segment, read_answer

pytestmark = pytest.mark.plain

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TEXTS = [" one", " two", " three"]


def event(text: str, reason: str = "null") -> bytes:
    return b'data: {"choices":[{"index":0,"text":"%s","finish_reason":%s}]}\n\n' % (text.encode(), reason.encode())


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
STREAM = [*map(event, TEXTS), event("", '"length"'), USAGE, b"data: [DONE]\n\n"]


def chunked(parts: list[bytes]) -> bytes:
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def cut(raw: bytes, places: list[int]) -> list[Segment]:
    """Read in pieces, the first at time 1, the next at time 2 ..."""
    ends = [0, *sorted({place % len(raw) for place in places} - {0}), len(raw)]
    return [Segment(1.0 + i, raw[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]


@given(st.lists(st.integers(1, 5000), max_size=30), st.lists(st.integers(1, 5000), max_size=12), st.booleans())
def test_an_event_has_the_time_of_the_end_of_its_line(reads: list[int], chunks: list[int], in_chunks: bool) -> None:
    body = b"".join(STREAM)
    raw = chunked([part.data for part in cut(body, chunks)]) if in_chunks else HEAD + b"\r\n" + body
    segments = cut(raw, reads)
    answer = read_answer(0.5, segments)
    assert (answer.text, answer.prompt_tokens, answer.tokens) == ("".join(TEXTS), 7, 3)
    seen, times = b"", []
    for segment in segments:
        before, seen = read_events(seen), seen + segment.data
        times += [segment.at] * (read_events(seen) - before)
    assert list(answer.pieces) == times
    assert answer.ended == segments[-1].at
    assert answer.first_s == times[0] - 0.5
    assert sum(answer.gaps_s) == times[-1] - times[0]


def read_events(raw: bytes) -> int:
    """How many pieces of text are whole in the beginning of an answer: an independent, slow count."""
    _, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" in raw[: raw.find(b"\r\n\r\n")]:
        payload = b""
        while b"\r\n" in body:
            size, _, rest = body.partition(b"\r\n")
            payload, body = payload + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        body = payload
    return sum(f'"text":"{text}"'.encode() in line for line in body.split(b"\n")[:-1] for text in TEXTS)


def test_the_error_of_a_malformed_answer_has_the_reason() -> None:
    whole = b"".join(STREAM)
    for raw, message in {
        b"": "no 200",
        b"HTTP/1.1 429 Too Many Requests\r\n\r\nlater": "429",
        HEAD + b"\r\n" + b"".join(STREAM[:2]): "cut short: 2 pieces",
        HEAD + b"\r\n" + whole.replace(USAGE, b""): "usage None",
        HEAD + b'\r\ndata: {"error": {"message": "out of pages"}}\n\n': "out of pages",
        HEAD + b"\r\ndata: what\n\n": "an event of b'what'",
        CHUNKED + b"zz\r\n": "a chunk of length b'zz'",
    }.items():
        with pytest.raises(BadAnswer, match=message):
            read_answer(0, [Segment(1.0, raw)])
