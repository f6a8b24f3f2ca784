"""Reads answers from segments of bytes and their times, after the load: the client shares two cores with the server."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec


class Segment(NamedTuple):
    """What one read gave, and when."""

    at: float
    data: bytes


class BadAnswer(Exception):
    """Not a whole stream of a completion; the message quotes the response."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One stream: the times of its request, of each piece of text and of its last byte, and the reported usage."""

    sent: float
    pieces: Sequence[float]
    ended: float
    prompt_tokens: int
    tokens: int
    text: str

    @property
    def first_s(self) -> float:
        """From the request to its first text."""
        return self.pieces[0] - self.sent

    @property
    def gaps_s(self) -> list[float]:
        """Between one piece of text and the next."""
        return [after - before for before, after in pairwise(self.pieces)]


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


def read_answer(sent: float, segments: Sequence[Segment]) -> Answer:
    """The answer in all that came on a connection, which the server has closed.

    Raises:
        BadAnswer: another status than 200, an error in the stream, or not the whole of it.
    """
    raw = b"".join(segment.data for segment in segments)
    head, blank, body = raw.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")
    if not blank or len(status) < 2 or status[1] != b"200":
        raise BadAnswer(f"no 200 but {raw[:400]!r}")
    pieces, ends, text, usage, finished = [], list(accumulate(len(one.data) for one in segments)), [], None, False
    chunked = b"transfer-encoding: chunked" in head.lower()
    for event, end in _events(body, len(head) + len(blank), chunked):
        if event == b"[DONE]":
            continue
        try:
            chunk = _decode(event)
        except msgspec.DecodeError:
            raise BadAnswer(f"an event of {event[:300]!r}") from None
        if not chunk.choices and chunk.usage is None and b'"error"' in event:
            raise BadAnswer(f"an error in the stream: {event[:300]!r}")
        usage = chunk.usage or usage
        finished = finished or bool(chunk.choices and chunk.choices[0].finish_reason)
        if chunk.choices and chunk.choices[0].text:
            text.append(chunk.choices[0].text)
            pieces.append(segments[bisect_left(ends, end)].at)
    if not finished or usage is None or not pieces:
        raise BadAnswer(f"cut short: {len(pieces)} pieces, usage {usage}, and no end: ...{raw[-200:]!r}")
    return Answer(sent, pieces, segments[-1].at, usage.prompt_tokens, usage.completion_tokens, "".join(text))


def _events(body: bytes, offset: int, chunked: bool) -> list[tuple[bytes, int]]:
    """The data of each event, and how many bytes of the connection had come when it was whole."""
    payload, origin = _dechunk(body, offset) if chunked else (body, [(0, offset)])
    starts = [start for start, _ in origin]
    events, at = [], 0
    for line in payload.splitlines(keepends=True):
        at += len(line)
        if line.startswith(b"data:") and line.endswith(b"\n"):
            last = at - 1  # the byte that ends the line
            start, came = origin[bisect_left(starts, last + 1) - 1]
            events.append((line[5:].strip(), came + last - start + 1))
    return events


def _dechunk(body: bytes, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The payload of a chunked body; and for each chunk where it begins in the payload and on the connection."""
    parts, origin, at, length = [], [], 0, 0
    while (end := body.find(b"\r\n", at)) >= 0:
        try:
            size = int(body[at:end].partition(b";")[0], 16)
        except ValueError:
            raise BadAnswer(f"a chunk of length {body[at:end][:40]!r}") from None
        if size == 0:
            break
        part = body[end + 2 : end + 2 + size]
        origin.append((length, offset + end + 2))
        parts.append(part)
        length += len(part)
        at = end + 2 + size + 2
    return b"".join(parts), origin
