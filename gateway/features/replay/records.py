"""The records of a folder, as they were written, and as requests to send in the order of their arrivals.

Segments have requests in the order of their ends, and each process has its own segments. The segments are merged by
ends. A request is sent on when no later one can have arrived before it: its arrival is further back than the longest
request took. So only the requests of such a time are in memory, at most `MOST_HELD`. Requests that change state, have
effects, or are not recorded in full are never sent.
"""

import heapq
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw

from adapters.tensors import SHARED_MEMORY
from adapters.types import Form
from adapters.wire.decoding import whole_number
from config.schema.config import Config
from config.schema.telemetry import CREDENTIAL_HEADERS
from gateway.features.recording.contents import GRPC, HEADER_LENGTH
from gateway.features.recording.entries import (
    Content,
    ContentsFrame,
    EntriesFrame,
    Holder,
    PolicyFrame,
    RecordEntry,
    decode,
)
from gateway.features.recording.segments import (
    CONTENTS,
    ENTRIES,
    POLICY,
    RecordError,
    RecordKey,
    SegmentReader,
    segments,
)
from gateway.features.replay.exchanging import RecordedResult, ResentRequest
from gateway.features.shadow.copied import SAFE_METHODS, exclusion_of_fields

DEFAULT = "RECORD_KEY"
"""The environment variable of the key if neither an option nor the file names another."""
_TEXTS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"})
MOST_HELD = 256 * 1024 * 1024
"""Bytes of the requests in memory. Beyond it the earliest is sent on, perhaps after a later one."""
_NOT_SENT = CREDENTIAL_HEADERS | {
    "connection", "content-encoding", "content-length", "expect", "host", "te", "trailer", "transfer-encoding",
    "upgrade",
}  # fmt: skip
"""Headers that are not sent again: credentials, and those of one connection."""
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class RecordedRequest(NamedTuple):
    """One entry with its client, and the policy under which it was decided."""

    entry: RecordEntry
    holder: Holder
    policy: PolicyFrame
    content: Content | None = None


class Records:
    """The records of a folder, in the order of the segments' starts. Reads one frame at a time."""

    def __init__(self, folder: Path, key: RecordKey, *, contents: bool = False) -> None:
        """Raises `RecordError` for a folder without segments."""
        self._key = key
        self._contents = contents
        self._skip = frozenset() if contents else frozenset({CONTENTS})
        self.paths = segments(folder)
        self.size = 0
        self.read = 0
        """Bytes of the segments that have been read."""
        for path in self.paths:
            self.size += path.stat().st_size
        if not self.paths:
            raise RecordError(f"{folder}: has no records")
        self.torn: dict[str, int] = {}
        """Segments that are not closed: their names, and the bytes after the last whole frame."""

    def __iter__(self) -> Iterator[RecordedRequest]:
        """Raises `RecordError` for a segment that cannot be read."""
        for path in self.paths:
            yield from self.segment(path)
            self.read += path.stat().st_size

    def segment(self, path: Path) -> Iterator[RecordedRequest]:
        """The records of one segment, in the order of their ends. Raises `RecordError`."""
        reader = SegmentReader(path, self._key)
        policy: PolicyFrame | None = None
        contents: dict[int, Content] = {}
        try:
            for kind, data in reader.frames(self._skip):
                if kind == POLICY:
                    policy = decode(data, PolicyFrame)
                elif kind == CONTENTS and self._contents:
                    contents |= {content.number: content for content in decode(data, ContentsFrame).contents}
                elif kind == ENTRIES and policy is not None:
                    frame = decode(data, EntriesFrame)
                    for entry in frame.entries:
                        holder = frame.holders[entry.holder]
                        yield RecordedRequest(entry, holder, policy, contents.pop(entry.number, None))
        except msgspec.MsgspecError as error:
            raise RecordError(f"{path.name}: another version wrote it: {error}") from None
        if not reader.is_closed:
            self.torn[path.name] = reader.torn


def record_key(config: Config | None, variable: str | None) -> RecordKey:
    """The key in an environment variable, or in the `record` of a file. Raises `RecordError`."""
    if variable is None and config is not None and config.record is not None:
        return RecordKey(config.record.key.get_secret_value())
    name = variable or DEFAULT
    secret = os.environ.get(name, "")
    if not secret:
        raise RecordError(f"the environment variable {name}, which has the key of the records, is not set")
    return RecordKey(secret)


def reason_not_sent(entry: RecordEntry, content: Content | None) -> str:
    """The reason why a request is not sent: `body`, `grpc`, `state`, `effects` or `operation`; empty if it is."""
    if content is None or not content.path:
        return "body"
    if content.path.startswith(GRPC):
        return "grpc"
    if entry.sequence:
        return "state"
    if content.path.startswith("/apps/"):
        return "" if content.method in SAFE_METHODS and entry.operation == "app" else "effects"
    if not content.body:
        return "body"
    if content.path in _TEXTS:
        return _of_text(content)
    if content.path.startswith(("/v2/models/", "/v1/models/")):
        return "state" if _uses_shared_memory(content) else ""
    return "operation"


def _of_text(content: Content) -> str:
    try:
        return exclusion_of_fields(_fields(content.body))
    except msgspec.MsgspecError:
        return "body"


def _uses_shared_memory(content: Content) -> bool:
    """Whether the JSON of an inference names a region of shared memory, to which a repetition would write."""
    length = content.headers.get(HEADER_LENGTH)
    end = int(length) if length else len(content.body)
    return content.body.find(SHARED_MEMORY.encode(), 0, end) >= 0


class RecordedTraffic:
    """Iterates over the requests of a folder. `unsent` counts the others by their reason."""

    def __init__(self, folder: Path, key: RecordKey) -> None:
        """Reads all entries once, without contents. Raises `RecordError`."""
        self._folder, self._key = folder, key
        self.unsent: Counter[str] = Counter()
        self.requests, self._longest, first = 0, 0, None
        entries = Records(folder, key)
        for request in entries:
            entry = request.entry
            self.requests += 1
            self._longest = max(self._longest, int(entry.end * 1e9))
            first = entry.arrival if first is None else min(first, entry.arrival)
        self.first = first or 0
        self.torn = entries.torn

    def __iter__(self) -> Iterator[ResentRequest]:
        """Raises `RecordError`."""
        for request in self._by_arrival():
            entry, content = request.entry, request.content
            reason = reason_not_sent(entry, content)
            if reason or content is None:
                self.unsent[reason] += 1
            else:
                yield resent(entry, content, self.first)

    def _by_arrival(self) -> Iterator[RecordedRequest]:
        records = Records(self._folder, self._key, contents=True)
        merged = heapq.merge(*(records.segment(path) for path in records.paths), key=_end_of)
        held: list[tuple[int, int, RecordedRequest]] = []
        size = 0
        for number, request in enumerate(merged):
            heapq.heappush(held, (request.entry.arrival, number, request))
            size += _size_of(request)
            safe = _end_of(request) - self._longest
            while held and (held[0][0] <= safe or size > MOST_HELD):
                earliest = heapq.heappop(held)[2]
                size -= _size_of(earliest)
                yield earliest
        while held:
            yield heapq.heappop(held)[2]


def resent(entry: RecordEntry, content: Content, first: int) -> ResentRequest:
    """The request of a record. It has no credential: the sender adds its own."""
    headers = {name: value for name, value in entry.headers.items() if name not in _NOT_SENT} | content.headers
    body = content.body
    if content.path == "/v1/responses":  # OpenAI stores a response unless the request excludes it
        body = msgspec.json.encode({**_fields(body), "store": False})
    comparable = content.answer is not None and not content.truncated and not content.redacted
    recorded = RecordedResult(entry.status, entry.end, entry.first_byte, entry.usage, content if comparable else None)
    due = (entry.arrival - first) / 1e9
    form = form_of(content.path, content.answer_headers.get(HEADER_LENGTH))
    return ResentRequest(due, content.path, body, headers, content.method, entry.operation, form, recorded)


def form_of(path: str, header_length: str | None = None) -> Form:
    """The wire format of the answers of a path."""
    if path.startswith("/v2/"):
        return Form("oip-http", whole_number(header_length or ""), generates="/generate" in path)
    if path.startswith("/v1/models/"):
        return Form("predict-v1")
    if path.startswith("/apps/"):
        return Form("app")
    return Form("anthropic") if path == "/v1/messages" else Form()


def _end_of(request: RecordedRequest) -> int:
    return request.entry.arrival + int(request.entry.end * 1e9)


def _size_of(request: RecordedRequest) -> int:
    content = request.content
    return 1024 if content is None else 1024 + len(content.body) + len(content.answer or b"")
