"""One line of an input file: its examination, and whether it runs again after a failure."""

import re
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

MOST_FAILURES = 4
"""Attempts of a line whose servers fail."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

FailureKind = Literal["caller", "credential", "capacity", "backend", "transport", "deadline", "cancelled"]


class LineRetry(NamedTuple):
    """Run the line again after a pause. `counts` tells whether the attempt counts as a failure."""

    pause: float
    counts: bool


def retry_of(
    kind: FailureKind,
    retry_after: float | None,
    failures: int,
    left: float,
    *,
    most: int = MOST_FAILURES,
    first: float = FIRST_PAUSE,
) -> LineRetry | None:
    """The next attempt of a line with `left` seconds until its batch expires; None if the failure is final."""
    pause = min(LONGEST_PAUSE, first * 2.0**failures)
    if kind == "capacity":
        wait = pause if retry_after is None else max(first, retry_after)
        return LineRetry(min(wait, LONGEST_PAUSE, max(left, 0.0)), counts=False) if isfinite(wait) else None
    if kind in ("backend", "transport", "deadline") and failures + 1 < most and pause < left:
        return LineRetry(pause, counts=True)
    return None


ENDPOINTS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"})
TENSORS = re.compile(r"/v2/models/([^/?#]{1,256})(/versions/[^/?#]{1,128})?/infer")
MAX_ID = 512
"""Characters of a `custom_id`."""
PREFIXES = (128, 384, 1024, 2048)
"""Bytes at the start of a prompt by which lines are grouped: by the shortest start, then within by longer ones."""
BYTES_PER_TOKEN = 4
MOST_PROBLEMS = 100
"""Problems that a failed batch reports."""
TOO_LONG = 0
"""The length of a line that is longer than a request may be."""


class LineProblem(msgspec.Struct, frozen=True, omit_defaults=False):
    """A reason why a batch fails, in OpenAI's form. `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchLine(msgspec.Struct, frozen=True):
    """A line, with a body that is not decoded."""

    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: Raw = Raw(b"null")


class _Body(msgspec.Struct, frozen=True):
    model: Any = None
    stream: Any = None
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    prompt: Raw = Raw()
    input: Raw = Raw()
    inputs: Raw = Raw()


class LineFacts(NamedTuple):
    """The facts of one line. `id_hash` is empty for a line that is not JSON: that line fails when it runs."""

    id_hash: bytes
    model_hash: bytes
    prefix_hash: bytes
    tokens: int
    problem: LineProblem | None


_line = msgspec.json.Decoder(BatchLine).decode
_body = msgspec.json.Decoder(_Body).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NONE = b"\xff" * 8


def is_endpoint(endpoint: str) -> bool:
    """Whether batches may use a path."""
    return endpoint in ENDPOINTS or TENSORS.fullmatch(endpoint) is not None


def decode_line(raw: bytes) -> BatchLine | None:
    """Decode a line; None if it is not a JSON object in UTF-8."""
    try:
        if not raw.isascii():
            raw.decode()  # the decoder skips the body
        return _line(raw)
    except _UNREADABLE:
        return None


def examine(raw: bytes, endpoint: str, number: int) -> LineFacts:
    """The facts of line `number`. Only a line that is not JSON is left to fail alone."""
    line = decode_line(raw)
    if line is None:
        return LineFacts(b"", _NONE, _NONE, 0, None)
    problem = _problem(line, endpoint, number)
    if problem is not None:
        return LineFacts(b"", _NONE, _NONE, 0, problem)
    body = _body(line.body)
    prompt = b"".join([memoryview(part) for part in (body.system, body.instructions)])
    rest = next((part for part in (body.messages, body.prompt, body.input, body.inputs) if memoryview(part)), Raw())
    tokens = (len(prompt) + len(memoryview(rest))) // BYTES_PER_TOKEN
    model = str(body.model) if line.url in ENDPOINTS else str(line.url)
    return LineFacts(
        _hash(line.custom_id.encode("utf-8", "surrogatepass"), 16),
        _hash(model.encode("utf-8", "surrogatepass")),
        _prefix_key((prompt + bytes(memoryview(rest)[: PREFIXES[-1]]))[: PREFIXES[-1]]),
        0 if line.url not in ENDPOINTS else tokens,
        None,
    )


def _problem(line: BatchLine, endpoint: str, number: int) -> LineProblem | None:
    custom_id = line.custom_id
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_ID:
        message = f"`custom_id` is a text of 1 to {MAX_ID} characters."
        return LineProblem("missing_required_parameter", message, number, "custom_id")
    if line.method != "POST":
        return LineProblem("invalid_method", "`method` is POST.", number, "method")
    if line.url != endpoint:
        message = f"`url` is the endpoint of the batch: {endpoint}."
        return LineProblem("mismatched_endpoint", message, number, "url")
    try:
        body = _body(line.body)
    except _UNREADABLE:
        return LineProblem("invalid_body", "`body` is a JSON object.", number, "body")
    if body.stream not in (None, False):
        return LineProblem("invalid_body", "A batch has no streams: leave out `stream`.", number, "body.stream")
    return None


def _prefix_key(prompt: bytes) -> bytes:
    """Eight bytes that sort prompts with the same start beside each other, whatever the length of the start."""
    return b"".join([_hash(prompt[:size], 2) for size in PREFIXES])


def _hash(data: bytes, size: int = 8) -> bytes:
    return blake2b(data, digest_size=size).digest()
