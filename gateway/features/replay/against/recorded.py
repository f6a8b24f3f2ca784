"""The requests of a folder in the order of their arrivals.

Segments have requests in the order of their ends, and each process has its own segments. The segments are merged by
ends. A request is sent on when no later one can have arrived before it: its arrival is further back than the longest
request took. So only the requests of such a time are in memory, at most `MOST_HELD`.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Raw

from adapters.types import Form
from adapters.wire.decoding import whole_number
from config.schema.telemetry import CREDENTIAL_HEADERS
from gateway.features.recording.contents import HEADER_LENGTH
from gateway.features.recording.entries import Content, RecordEntry
from gateway.features.recording.keys import RecordKey
from gateway.features.replay.against.planned import RecordedResult, ResentRequest
from gateway.features.replay.against.unsent import reason_not_sent
from gateway.features.replay.records import RecordedRequest, Records

MOST_HELD = 256 * 1024 * 1024
"""Bytes of the requests in memory. Beyond it the earliest is sent on, perhaps after a later one."""
_NOT_SENT = CREDENTIAL_HEADERS | {
    "connection", "content-encoding", "content-length", "expect", "host", "te", "trailer", "transfer-encoding",
    "upgrade",
}  # fmt: skip
"""Headers that are not sent again: credentials, and those of one connection."""
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


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
