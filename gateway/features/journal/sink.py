"""Appends the ended requests of one process to its journal."""

import logging
from pathlib import Path

import msgspec

from adapters.errors import CredentialError
from adapters.types import Usage
from config.schema.config import Config
from gateway.features.journal.files import encode
from gateway.features.journal.lines import MICROS, MOST_TEXT, NUMBERS, RequestLine, split
from gateway.features.journal.reasons import Reasons, detail_of
from gateway.state.journal import Journal, JournalFull
from gateway.telemetry.figures import is_failure
from gateway.telemetry.record import Record
from policies.globs import GlobSet

log = logging.getLogger(__name__)
_REFUSED_EVERY = 1.0
_MOST_REFUSED = 1000
_NO_USAGE = (0,) * len(NUMBERS)
_json = msgspec.json.Encoder().encode


class RequestSink:
    """`put` each ended request, then `close`. A full disk loses requests of the journal, which are counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uncounted = 0
        """Requests that are lost for usage."""
        self.unrecorded = 0
        """Requests that are lost for the search."""
        self._counts = self._has_users = False
        self._reasons: Reasons | None = None
        self._excluded = GlobSet(())
        self._file: Journal | None = None
        self._failing = False
        self._next: dict[str, float] = {}
        """By the id of an ended key: when its next refusal is recorded, in Unix seconds."""

    def configure(self, config: Config) -> None:
        """Put a configuration in force."""
        self._counts = config.usage is not None
        self._has_users = names_users(config)
        self._reasons = None if config.requests is None else Reasons(config)
        self._excluded = GlobSet(() if config.requests is None else config.requests.exclude)

    def put(self, record: Record) -> None:
        """Append a request, as usage, for the search, or for both.

        Requests without a tenant are not stored: anyone can send them. Those without a model are not usage, and only
        their errors are searched for: a list of models, a wrong key. A batch counts the usage of its lines. What a
        request has drawn from limits of long periods is stored in each case.
        """
        if not record.tenant:
            return
        counted = self._counts and record.model != "" and not record.of_batch
        draws = self._counts and bool(record.draws)
        reasons = self._reasons
        if isinstance(record.error, CredentialError) and not self._is_due(record):
            return
        if reasons is not None and (record.model in self._excluded or not (record.model or record.error is not None)):
            reasons = None
        if not counted and not draws and reasons is None:
            return
        line = b""
        if reasons is not None:
            try:
                line = encode(self._with_user(record, line_of(record, reasons, counted=counted, draws=draws)))
            except Exception:  # a request ends whatever its record has, and counts
                log.exception("journal: a request is not recorded")
                self.unrecorded, reasons = self.unrecorded + 1, None
        if not line and (counted or draws):
            line = encode(self._with_user(record, usage_line(record, counted=counted, draws=draws)))
        if line:
            self._write(line, counted=counted or draws, recorded=reasons is not None)

    def _with_user(self, record: Record, line: RequestLine) -> RequestLine:
        if self._has_users and record.user and (line.counted or line.detail):
            line.user = _text(record.user)
        return line

    def _is_due(self, record: Record) -> bool:
        """Whether a refused credential is recorded: once a second for each, since no limit stops its holder."""
        if record.time < self._next.get(record.key, 0.0):
            return False
        if len(self._next) >= _MOST_REFUSED:
            self._next.clear()
        self._next[record.key] = record.time + _REFUSED_EVERY
        return True

    def _write(self, line: bytes, *, counted: bool, recorded: bool) -> None:
        """Append a line. The begin and the end of a loss are logged."""
        try:
            self._append(line)
        except OSError as error:
            self.uncounted += counted
            self.unrecorded += recorded
            if not self._failing:
                log.warning("journal: %s: ended requests are lost: %s", self.folder, error.strerror or error)
            self._failing = True
            return
        if self._failing:
            lost = max(self.uncounted, self.unrecorded)
            log.warning("journal: ended requests are written again; %d were lost", lost)
            self._failing = False

    def close(self) -> None:
        """Leave the file to its readers."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, line: bytes) -> None:
        if self._file is not None:
            try:
                self._file.append(line)
                return
            except JournalFull:
                self.close()
        self._file = Journal(self.folder)
        self._file.append(line)


def names_users(config: Config) -> bool:
    """Whether the names of end users are stored."""
    return config.usage is not None and config.usage.users > 0


def line_of(record: Record, reasons: Reasons, *, counted: bool, draws: bool) -> RequestLine:
    """The line of a request."""
    started, trace, line = record.started, record.trace, usage_line(record, counted=counted, draws=draws)
    line.id = _text(record.request_id)
    line.operation, line.pool, line.status = record.operation, record.pool, record.status
    if record.error is not None:
        line.code = _text(record.error.code)
    line.endpoint, line.trace, line.stream = record.endpoint, record.exported, record.stream
    line.duration = _micros(record.ended - started)
    if trace.first_chunk:
        line.first_chunk = _micros(trace.first_chunk - started)
    line.detail = _json(detail_of(record, reasons)).decode()
    return line


def usage_line(record: Record, *, counted: bool, draws: bool) -> RequestLine:
    """The line of a request that no search finds: it counts as usage, for limits, or for both."""
    usage, error, cost = record.usage, record.error, record.cost
    billions, picos = (0, 0) if cost is None else split(cost.picos)
    return RequestLine(
        int(record.time * MICROS), "", record.tenant, _text(record.key), _text(record.model), "", "",
        record.arm or "", 0, "" if error is None else error.kind, "", "" if cost is None else cost.currency,
        "", "", False, 0, -1, picos, _NO_USAGE if usage is None else _numbers(usage), "", record.team, billions,
        counted, failed=error is not None and is_failure(error.kind, record.status), lineage=record.lineage,
        draws=record.draws if draws else (),
    )  # fmt: skip


def _numbers(usage: Usage) -> tuple[int, ...]:
    return (
        usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens, usage.rows,
        usage.bytes, int(usage.device_ms * 1000),
    )  # fmt: skip


def _micros(seconds: float) -> int:
    return max(0, int(seconds * MICROS))


def _text(text: str) -> str:
    """A text that every database can store: cut, and without NUL and lone surrogates."""
    if len(text) <= MOST_TEXT and text.isascii() and "\0" not in text:
        return text
    return text[:MOST_TEXT].replace("\0", "").encode(errors="replace").decode()
