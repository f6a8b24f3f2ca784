"""Public traces as arrivals and lengths of requests, whose prompts are synthetic; and a recording as such a trace.

Formats: Mooncake (Qin et al., 2024; JSON lines with `timestamp` in ms, `input_length`, `output_length`, `hash_ids`),
BurstGPT (Wang et al., 2024; CSV) and Azure's LLM inference traces (Patel et al., 2024; CSV).
"""

import csv
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from gateway.features.recording.entries import Content
from gateway.features.replay.exchanging import ResentRequest
from gateway.features.replay.records import RecordedRequest

BLOCK = 512
"""Tokens of a block of Mooncake's traces. Requests with the same id have the same text in its place."""
MOST_TOKENS = 10_000_000
_WORDS = re.findall(
    r"\w+",
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name team minute idea body back face level door art war party",
)
"""Common words, of about one token each."""
_FRACTION = re.compile(r"(\.\d{6})\d+")
BLOCK_BYTES = 4 * BLOCK
"""Bytes of a prompt that stand for a block, because a record has no tokens: about four bytes a token."""
_OPERATIONS = frozenset({"chat", "text_completion", "responses", "messages"})
_PROMPTS = ("system", "instructions", "tools", "messages", "prompt", "input")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TraceError(ValueError):
    """A trace cannot be read. The message is for the operator."""


class TracedArrival(NamedTuple):
    """One request of a trace."""

    at: float
    """Seconds."""
    prompt: int
    completion: int
    blocks: tuple[int, ...] = ()


class _MooncakeLine(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


class TracedTraffic:
    """Iterates over the requests of a trace, for one model. Times begin with the earliest."""

    def __init__(self, name: str, path: Path, model: str) -> None:
        """Raises `TraceError`, `OSError`."""
        if name not in FORMATS:
            raise TraceError(f"--trace is one of {', '.join(FORMATS)}, got {name!r}")
        self._model = model
        self._arrivals = sorted(_checked(path, FORMATS[name](path)))
        if not self._arrivals:
            raise TraceError(f"{path}: has no requests")
        self.requests = len(self._arrivals)

    def __iter__(self) -> Iterator[ResentRequest]:
        first = self._arrivals[0].at
        for number, arrival in enumerate(self._arrivals):
            body = {
                "model": self._model,
                "messages": [{"role": "user", "content": prompt_of(arrival, number)}],
                "max_tokens": max(1, arrival.completion),
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            headers = {"content-type": "application/json"}
            yield ResentRequest(arrival.at - first, "/v1/chat/completions", msgspec.json.encode(body), headers)


def prompt_of(arrival: TracedArrival, number: int) -> str:
    """A text of about so many tokens: a word each. The blocks of an arrival determine it, else its number does."""
    count = max(1, arrival.prompt)
    blocks = -(-count // BLOCK)
    seeds = [f"block {block}" for block in arrival.blocks[:blocks]]
    seeds += [f"request {number} {index}" for index in range(len(seeds), blocks)]
    words = [word for seed in seeds for word in Random(seed).choices(_WORDS, k=BLOCK)]
    return " ".join(words[:count])


def _mooncake(path: Path) -> Iterator[TracedArrival]:
    decode = msgspec.json.Decoder(_MooncakeLine).decode
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    entry = decode(line)
                except msgspec.MsgspecError as error:
                    raise TraceError(f"{path}: line {number}: {error}") from None
                yield TracedArrival(entry.timestamp / 1e3, entry.input_length, entry.output_length, entry.hash_ids)


def _burstgpt(path: Path) -> Iterator[TracedArrival]:
    yield from _rows(path, ("Timestamp", "Request tokens", "Response tokens"), float)


def _azure(path: Path) -> Iterator[TracedArrival]:
    yield from _rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _unix)


def _rows(path: Path, columns: tuple[str, str, str], seconds: Callable[[str], float]) -> Iterator[TracedArrival]:
    at, prompt, completion = columns
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if missing := set(columns) - set(rows.fieldnames or ()):
            raise TraceError(f"{path}: has no column {', '.join(sorted(missing))}")
        for row in rows:
            try:
                yield TracedArrival(seconds(row[at]), int(row[prompt]), int(row[completion]))
            except (ValueError, TypeError, csv.Error) as error:
                raise TraceError(f"{path}: line {rows.line_num}: {error}") from None


def _unix(written: str) -> float:
    """The Unix time of a date, such as `2023-11-16 18:17:03.9799600`; without a zone it is UTC."""
    date = datetime.fromisoformat(_FRACTION.sub(r"\1", written.strip()))
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _checked(path: Path, arrivals: Iterator[TracedArrival]) -> Iterator[TracedArrival]:
    for number, arrival in enumerate(arrivals, 1):
        lengths = (arrival.prompt, arrival.completion)
        if not all(0 <= length <= MOST_TOKENS for length in lengths) or not abs(arrival.at) < 1e12:
            raise TraceError(f"{path}: request {number}: a length or a time is out of range")
        yield arrival


FORMATS: dict[str, Callable[[Path], Iterator[TracedArrival]]] = {
    "mooncake": _mooncake, "burstgpt": _burstgpt, "azure": _azure,
}  # fmt: skip


"""Tokens of a block."""


def trace_of(requests: Iterator[RecordedRequest]) -> Iterator[dict[str, object]]:
    """The lines of the trace, in the order of arrivals. Raises `RecordError`.

    `hash_ids` are numbers of blocks: two requests have the same number if their prompts agree up to the block's end.
    """
    numbers: dict[bytes, int] = {}
    lines: list[tuple[int, int, int, tuple[int, ...]]] = []
    for entry, _, _, content in requests:
        if entry.operation not in _OPERATIONS:
            continue
        usage = entry.usage
        prompt = usage.prompt_tokens if usage is not None and usage.prompt_tokens else entry.prompt_tokens
        completion = 0 if usage is None else usage.completion_tokens
        digests = _chained(content, -(-prompt // BLOCK), entry.id.encode())
        blocks = tuple(numbers.setdefault(digest, len(numbers)) for digest in digests)
        lines.append((entry.arrival, prompt, completion, blocks))
    lines.sort()
    for arrival, prompt, completion, blocks in lines:
        yield {
            "timestamp": (arrival - lines[0][0]) // 1_000_000,
            "input_length": prompt,
            "output_length": completion,
            "hash_ids": blocks,
        }


def _chained(content: Content | None, count: int, unique: bytes) -> Iterator[bytes]:
    """A digest of the prompt up to the end of each block. Blocks beyond the text are the request's own."""
    text = b"" if content is None else _prompt(content)
    chained = blake2b(digest_size=12)
    for number in range(count):
        block = text[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
        chained.update(block if len(block) == BLOCK_BYTES else block + b"\0" + unique)
        yield chained.digest()


def _prompt(content: Content) -> bytes:
    """The parts of a body that a prompt consists of, in a fixed order."""
    try:
        fields = _fields(content.body)
    except msgspec.MsgspecError:
        return b""
    return b"\0".join(bytes(fields[name]) for name in _PROMPTS if name in fields)
