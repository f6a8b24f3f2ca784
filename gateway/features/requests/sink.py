"""Appends the ended requests of one process to its journal."""

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from adapters.types import Usage
from config.schema.config import Config
from gateway.features.requests.lines import MICROS, MOST_TEXT, NUMBERS, PART, RequestLine
from gateway.features.requests.reasons import Reasons, detail_of
from gateway.features.requests.spool import ProcessMark, encode
from gateway.state.journal import Journal, JournalFull
from gateway.telemetry.record import Record
from policies.globs import GlobSet

log = logging.getLogger(__name__)
_NO_USAGE = (0,) * len(NUMBERS)
_json = msgspec.json.Encoder().encode


class RequestSink:
    """`put` each ended request, then `close`. A full disk loses records, which `lost` counts, no request."""

    def __init__(self, folder: Path, process: str | None = None) -> None:
        """`process` identifies this process in the names of files, as it does in those of usage."""
        self.folder = folder
        self._process = process or uuid4().hex
        self._mark: ProcessMark | None = None
        self.lost: Counter[str] = Counter()
        """Lost records, by reason: `disk`."""
        self._reasons: Reasons
        self._excluded: GlobSet
        self._file: Journal | None = None
        self._failing = False

    def configure(self, config: Config) -> None:
        """Put a configuration in force."""
        assert config.requests is not None
        self._reasons = Reasons(config)
        self._excluded = GlobSet(config.requests.exclude)
        self._begin()

    def put(self, record: Record) -> None:
        """Append the record of a request. Requests without a tenant are not stored: anyone can send them.

        Answered requests without a model are not stored either, such as a list of models.
        """
        if not record.tenant or (not record.model and record.error is None) or record.model in self._excluded:
            return
        try:
            self._append(encode(line_of(record, self._reasons)))
        except OSError as error:
            self.lost["disk"] += 1
            if not self._failing:
                log.warning("requests: %s: records are lost: %s", self.folder, error.strerror or error)
            self._failing = True
            return
        if self._failing:
            log.warning("requests: records are written again; %d were lost", self.lost["disk"])
            self._failing = False

    def close(self) -> None:
        """Leave the file to the writer."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._mark is not None:
            self._mark.close()
            self._mark = None

    def _begin(self) -> None:
        """Mark this process before its first record. On a full disk, again before its next file."""
        if self._mark is None:
            with suppress(OSError):
                self._mark = ProcessMark(self.folder, self._process)

    def _append(self, line: bytes) -> None:
        if self._file is not None:
            try:
                self._file.append(line)
                return
            except JournalFull:
                self._file.close()
                self._file = None
        self._begin()
        self._file = Journal(self.folder, self._process)
        self._file.append(line)


def line_of(record: Record, reasons: Reasons) -> RequestLine:
    """The record as the database stores it."""
    started, trace, usage, error, cost = record.started, record.trace, record.usage, record.error, record.cost
    billions, picos = divmod(0 if cost is None else cost.picos, PART)
    if billions < PART:  # nearly always
        billions, picos = 0, billions * PART + picos
    return RequestLine(
        at=int(record.time * MICROS),
        id=_text(record.request_id),
        tenant=record.tenant,
        key=_text(record.key),
        model=_text(record.model),
        operation=record.operation,
        pool=record.pool,
        arm=record.arm or "",
        status=record.status,
        error="" if error is None else error.kind,
        code="" if error is None else _text(error.code),
        currency="" if cost is None else cost.currency,
        endpoint=record.endpoint,
        trace=record.exported,
        stream=record.stream,
        duration=_micros(record.ended - started),
        first_chunk=_micros(trace.first_chunk - started) if trace.first_chunk else -1,
        picos=picos,
        usage=_NO_USAGE if usage is None else _numbers(usage),
        detail=_json(detail_of(record, reasons)).decode(),
        team=record.team,
        billions=billions,
        counted=record.counted,
    )


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
