"""The queue of records behind the requests, and the task that redacts, encrypts and writes them.

A full queue, a full disk and an unwritable folder lose records, which are counted; requests never wait.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from config.schema.config import Config
from config.schema.telemetry import RecordConfig
from gateway.features.recording import contents, entries, segments
from gateway.features.recording.entries import (
    FEATURES,
    Content,
    Holder,
    PolicyFrame,
    RecordedVerdict,
    RecordEntry,
    Usages,
)
from gateway.features.recording.policy import NOT_FOUND, Predicted, RecordedPolicy, StandIns, pools_of
from gateway.features.recording.sample import Draft, Sample
from gateway.features.recording.segments import CONTENTS, ENTRIES, POLICY, RecordKey, SegmentWriter
from gateway.telemetry import Record
from gateway.telemetry.events import cached
from gateway.telemetry.redaction.texts import Redaction
from policies.globs import GlobSet
from policies.limits.limits import NOTHING

FRAME_BYTES = 1024 * 1024
MOST_WAITING = 10_000
MOST_WAITING_BYTES = 64 * 1024 * 1024
FRAME_ENTRIES = 1024
BATCH = 64
"""Records that wait before they are encoded, unless their time has come."""
TURN_SECONDS = 0.001
"""Time of the event loop that the encoding takes at once."""
FLUSH_SECONDS = 1.0
"""Seconds after which records are written, also if a frame is not full."""
SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENT_SECONDS = 3600.0
SWEEP_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""Seconds without another attempt after a failed write."""
_NO_OPERATIONS = frozenset({"models", "unknown", ""})
_log = logging.getLogger(__name__)


class PolicyParts(NamedTuple):
    """A policy, and what its records need."""

    policy: RecordedPolicy
    stand_ins: StandIns
    frame: PolicyFrame


class Frames:
    """The records that the next write appends, which were encoded under one policy."""

    def __init__(self, policy: PolicyFrame) -> None:
        self.policy = policy
        self.holders: dict[object, int] = {}
        self.listed: list[Holder] = []
        self.entries: list[RecordEntry] = []
        self.contents: list[Content] = []
        self.bytes = 0

    def index(self, holder: Holder) -> int:
        """The index of a client."""
        same = (holder.tenant, holder.key, holder.roles, *holder.labels.items(), repr(holder.scope))
        index = self.holders.setdefault(same, len(self.listed))
        if index == len(self.listed):
            self.listed.append(holder)
        return index

    def encoded(self) -> Iterator[tuple[int, bytes]]:
        """The frames to write. Contents come first: an entry in the file has its content."""
        batch: list[Content] = []
        size = 0
        for content in self.contents:
            batch.append(content)
            size += len(content.body) + len(content.answer or b"")
            if size >= FRAME_BYTES:
                yield CONTENTS, entries.encode(entries.ContentsFrame(batch))
                batch, size = [], 0
        if batch:
            yield CONTENTS, entries.encode(entries.ContentsFrame(batch))
        yield ENTRIES, entries.encode(entries.EntriesFrame(self.listed, self.entries))


class TrafficRecorder:
    """`put` each ended request; `run` writes until `aclose`, which waits for the rest."""

    def __init__(self, config: RecordConfig) -> None:
        self._config = config
        self._key = RecordKey(config.key.get_secret_value())
        self._folder = Path(config.to)
        self._redaction = Redaction(config.redact)
        self._settings = contents.Settings(
            config.redact, self._key.derived("digests"), digest_only=config.bodies == "digest"
        )
        self._excluded = GlobSet(config.exclude)
        self._waiting: deque[tuple[Record, Draft | None, PolicyParts]] = deque()
        self._bytes = 0
        self._noted = asyncio.Event()
        self._frames = Frames(PolicyFrame({}, 0.0, 0.0))
        self._earlier: list[Frames] = []
        """Records under earlier policies that are not written yet."""
        self._number = 0
        self._segment: SegmentWriter | None = None
        self._policy_of_segment: PolicyFrame | None = None
        self._began = 0.0
        self._next_sweep = 0.0
        self._retry_at = 0.0
        self._failing = False
        self._closing = False
        self._closed_all = asyncio.Event()
        self.written: Counter[str] = Counter()
        """Records and bytes."""
        self.lost: Counter[str] = Counter()
        """Lost records, by reason: `queue`, `disk` or `content`."""
        self.sample: Sample
        self._parts: PolicyParts

    def configure(self, config: Config) -> None:
        """Record under a (new) policy, in a new segment."""
        assert config.record is not None
        policy = RecordedPolicy(config)
        headers = sorted({*config.record.headers, *policy.read_headers, *policy.sticky_headers})
        answers = config.record.answers
        self.sample = Sample(config.record.share, self._key.derived("sample"), headers, answers=answers)
        frame = PolicyFrame(policy.digests, config.record.share, time.time(), self.sample.headers)
        self._parts = PolicyParts(policy, StandIns(policy, self._key.derived("subjects")), frame)
        self._earlier.append(self._frames)
        self._frames = Frames(frame)

    # ── behind a request ──────────────────────────────────────────────────────────────────────────────────

    def put(self, record: Record) -> None:
        """Queue the record of an ended request, if it is sampled."""
        draft = record.draft
        assert draft is None or isinstance(draft, Draft)
        if draft is None and (
            record.error is None
            or record.model
            or not record.tenant
            or record.operation in _NO_OPERATIONS
            or not self.sample.has(record.request_id)
        ):
            return
        if record.model in self._excluded:
            return
        size = 0 if draft is None else draft.size
        if len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
            self.lost["queue"] += 1
            return
        self._bytes += size
        self._waiting.append((record, draft, self._parts))
        if len(self._waiting) >= BATCH or self._bytes >= FRAME_BYTES:
            self._noted.set()

    # ── the task ──────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Write and delete, until `aclose` is called and everything is written."""
        self._closed_all.clear()
        try:
            while not self._closing or self._waiting or self._frames.entries or self._earlier:
                await self._collect(FLUSH_SECONDS)
                await self._write()
                if time.time() >= self._next_sweep:
                    self._next_sweep = time.time() + SWEEP_SECONDS
                    await self._sweep()
            segment, self._segment = self._segment, None
            if segment is not None:
                await asyncio.to_thread(self._closed, segment)
        finally:
            self._closed_all.set()

    async def aclose(self) -> None:
        """Let `run` write the remaining records and close the segment."""
        self._closing = True
        self._noted.set()
        await self._closed_all.wait()

    async def _collect(self, seconds: float) -> None:
        """Encode waiting records, until a frame is full or the time has passed.

        Records are encoded in batches, as each start of this task costs more than the encoding of a record.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_full and not (self._closing and not self._waiting):
            if len(self._waiting) < BATCH and self._bytes < FRAME_BYTES and not self._closing:
                self._noted.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._noted.wait()
            await self._encode_waiting()
            if loop.time() >= until:
                return

    async def _encode_waiting(self) -> None:
        """Encode the waiting records of one frame, in turns with requests."""
        yield_at = time.monotonic() + TURN_SECONDS
        while self._waiting and not self._is_full:
            record, draft, parts = self._waiting.popleft()
            self._bytes -= 0 if draft is None else draft.size
            try:
                await self._encode(record, draft, parts)
            except Exception:
                self.lost["content"] += 1
                _log.exception("a request could not be recorded")
            if time.monotonic() >= yield_at:
                await asyncio.sleep(0)  # requests come first
                yield_at = time.monotonic() + TURN_SECONDS

    @property
    def _is_full(self) -> bool:
        return len(self._frames.entries) >= FRAME_ENTRIES or self._frames.bytes >= FRAME_BYTES

    def _frames_of(self, policy: PolicyFrame) -> Frames:
        """The frames of the policy under which a record was queued, which a reload may have replaced since."""
        frames = next((each for each in (self._frames, *self._earlier) if each.policy is policy), None)
        if frames is None:
            frames = Frames(policy)
            self._earlier.append(frames)
        return frames

    async def _encode(self, record: Record, draft: Draft | None, parts: PolicyParts) -> None:
        frames = self._frames_of(parts.frame)
        self._number += 1
        text = self._redaction.text
        arrival = time.time_ns() - time.monotonic_ns() + int(record.started * 1e9)
        entry = RecordEntry(self._number, text(record.request_id), 0, arrival, record.operation)
        self._end_of(entry, record)
        if draft is None:
            entry.holder = frames.index(Holder(record.tenant, record.key, tuple(sorted(record.roles))))
            frames.entries.append(entry)
            return
        self._request_of(entry, draft, record, parts.policy.sticky_headers)
        entry.reproduces = _places(entry, draft, record, parts.stand_ins)
        content = await contents.content_of(draft, entry.user, self._settings, whole=record.error is None)
        if content is None:
            self.lost["content"] += 1
        else:
            content.number = entry.number
            frames.contents.append(content)
            frames.bytes += len(content.body) + len(content.answer or b"")
        principal = draft.exchange.principal
        scope = None if principal.scope is None else principal.scope.names
        labels = {name: text(value) for name, value in principal.labels.items()}
        roles, team = tuple(sorted(principal.roles)), principal.team
        holder = Holder(principal.tenant, text(principal.key_id), roles, labels, scope, team)
        entry.holder = frames.index(holder)
        frames.entries.append(entry)

    def _request_of(self, entry: RecordEntry, draft: Draft, record: Record, sticky: frozenset[str]) -> None:
        exchange, request, decision, text = draft.exchange, draft.request, record.decision, self._redaction.text
        entry.model = text(request.model[:256]) if decision is None else request.model
        entry.version = text(request.version[:64]) if decision is None else request.version
        entry.kind, entry.stream = type(request).__name__, request.stream
        entry.operation = request.operation
        entry.prompt_tokens, entry.max_tokens, entry.n = request.prompt_tokens, request.max_tokens, request.n
        entry.rows, entry.size = request.row_count, request.size
        entry.features = sum(request.uses_feature(name) << bit for bit, name in enumerate(FEATURES))
        entry.user, entry.sequence = request.user or "", request.sequence
        entry.headers = {name: value if name in sticky else text(value) for name, value in draft.headers.items()}
        entry.decided, entry.draws = exchange.time if record.model else 0.0, tuple(draft.draws)
        entry.configured = record.model
        if exchange.amounts is not NOTHING:
            entry.amounts, entry.reserved = exchange.amounts, 0 if exchange.cost is None else exchange.cost.picos
        if decision is not None:
            entry.route, entry.arm, entry.pools = decision.route, decision.arm, pools_of(decision)
            if decision.comparison is not None:
                entry.comparison = (decision.comparison.name, draft.shares)

    def _end_of(self, entry: RecordEntry, record: Record) -> None:
        trace, usage, error = record.trace, record.usage, record.error
        entry.pool, entry.endpoint = record.pool, record.endpoint
        entry.attempts, entry.status = tuple(trace.attempts), record.status
        if error is not None:
            entry.error, entry.code = error.kind, error.code
        if usage is not None:
            entry.usage = Usages(
                usage.prompt_tokens, usage.completion_tokens, usage.rows, usage.bytes, usage.device_ms, usage.exact,
                usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens,
            )  # fmt: skip
        if record.cost is not None:
            entry.cost = (record.cost.picos, record.cost.currency)
        if trace.first_chunk:
            entry.first_byte = trace.first_chunk - record.started
        entry.end, entry.queued = record.ended - record.started, trace.queue_seconds
        entry.cached = (cached(trace.events) or "") if trace.events else ""
        if record.guards:
            entry.guards = tuple(RecordedVerdict(*verdict, count) for verdict, count in record.guards.items())

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self) -> None:
        """Write all records, first those under earlier policies."""
        earlier, self._earlier = self._earlier, []
        current = self._frames
        self._frames = Frames(current.policy)
        for frames in (*earlier, current):
            if frames.entries:
                await self._write_frames(frames)

    async def _write_frames(self, frames: Frames) -> None:
        if time.monotonic() < self._retry_at:
            self.lost["disk"] += len(frames.entries)
            return
        try:
            size = await asyncio.to_thread(self._append, frames)
        except OSError as error:
            self.lost["disk"] += len(frames.entries)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._report(error)
        else:
            self.written["records"] += len(frames.entries)
            self.written["bytes"] += size
            if self._failing:
                _log.warning("%s: records are written again; %d were lost", self._folder, self.lost["disk"])
                self._failing = False

    def _append(self, frames: Frames) -> int:
        """In a thread: write the frames, and return their bytes. Raises `OSError`."""
        now = time.time()
        most = min(SEGMENT_BYTES, self._config.max // segments.OLDEST_SHARE)
        longest = min(SEGMENT_SECONDS, self._config.keep / 8)
        segment = self._segment
        if segment is not None and (
            segment.size >= most or now - self._began >= longest or self._policy_of_segment is not frames.policy
        ):
            self._segment = None
            self._closed(segment)
        if self._segment is None:
            self._segment, self._began = self._opened(frames.policy, now), now
            self._policy_of_segment = frames.policy
        before = self._segment.size
        try:
            for kind, data in frames.encoded():
                self._segment.write(kind, data)
        except OSError:
            segment, self._segment = self._segment, None
            self._closed(segment)
            raise
        return self._segment.size - before

    def _opened(self, policy: PolicyFrame, now: float) -> SegmentWriter:
        segment = SegmentWriter(segments.new_path(self._folder, now), self._key)
        try:
            segment.write(POLICY, entries.encode(replace(policy, started=now)))
        except OSError:
            self._closed(segment)
            raise
        return segment

    def _closed(self, segment: SegmentWriter) -> None:
        try:
            segment.close()
        except OSError as error:  # its last frame is whole, and its end is not marked
            _log.info("%s: is not closed: %s", segment.path, error)

    async def _sweep(self) -> None:
        own = () if self._segment is None else (self._segment.path,)
        try:
            await asyncio.to_thread(segments.sweep, self._folder, self._config.keep, self._config.max, time.time(), own)
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._failing:
            _log.warning("%s: records are lost: %s", self._folder, error.strerror or error)
        self._failing = True


def _places(entry: RecordEntry, draft: Draft, record: Record, stand_ins: StandIns) -> bool:
    """Replace the subjects of the entry. Returns whether its facts lead to its decision."""
    made = Predicted(NOT_FOUND)
    if record.decision is not None:
        made = Predicted("", entry.configured, entry.route, entry.arm, entry.pools)
    return stand_ins.place(entry, draft.exchange.principal, made)
