"""What the gateway has recorded about the time of a question, and its state now."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from config.schema.config import Config
from gateway.admin.api.backend import AdminBackend
from gateway.admin.diagnosis.finding import Row
from gateway.admin.diagnosis.question import Question
from gateway.features.journal.lines import MICROS
from gateway.features.requests.search import RequestQuery
from gateway.features.requests.store import RequestStore
from gateway.state.errors import StateError

MOST_ACTS = 200
_BEFORE = 3600.0
"""Seconds before the time of a question whose administrative acts may be a cause."""


class Samples:
    """The metrics of a gateway now."""

    def __init__(self, values: Mapping[str, Sequence[tuple[Mapping[str, str], float]]]) -> None:
        self._values = values

    def of(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Every series of a metric: its labels and its value."""
        return self._values.get(name, ())

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels; 0 without any."""
        return sum(v for of, v in self.of(name) if all(of.get(n) == text for n, text in labels.items()))


class Evidence(NamedTuple):
    """All that the causes are found in. It has no prompt, no answer and no credential."""

    question: Question
    config: Config
    state: Mapping[str, Any]
    samples: Samples
    stored: bool
    """Whether the configuration stores requests."""
    rows: Sequence[Row] = ()
    """The newest requests of the question, failed and answered."""
    failed: Sequence[Row] = ()
    """The newest failed requests of the question."""
    acts: Sequence[Mapping[str, Any]] = ()
    """Administrative acts before and during the time, the newest first."""
    gaps: Sequence[str] = ()
    """Evidence that could not be read, each with the reason."""


async def gather(backend: AdminBackend, question: Question) -> Evidence:
    """Read everything. What cannot be read becomes a gap: an outage of the database is itself a cause."""
    gaps: list[str] = []
    evidence = Evidence(
        question, backend.config, await backend.state(), await _samples(backend), backend.config.requests is not None
    )
    rows: Sequence[Row] = ()
    failed: Sequence[Row] = ()
    if backend.config.requests is not None:
        try:
            await backend.requests.write()  # so that requests of the last seconds are there
            store = await backend.requests.store()
            rows, failed = await asyncio.to_thread(_read, store, question)
        except StateError as error:
            gaps.append(f"requests: {error}")
    acts: Sequence[Mapping[str, Any]] = ()
    try:
        acts = await asyncio.to_thread(_acts, backend, question.query)
    except StateError as error:
        gaps.append(f"audit log: {error}")
    return evidence._replace(rows=rows, failed=failed, acts=acts, gaps=gaps)


def _read(store: RequestStore, question: Question) -> tuple[list[Row], list[Row]]:
    """The newest requests, and the newest failed ones."""
    query = question.query
    rows = store.search(query)
    failed = store.search(query._replace(labels=(*query.labels, *question.failures)))
    return [_decoded(row) for row in rows], [_decoded(row) for row in failed]


def _decoded(row: Mapping[str, Any]) -> Row:
    detail = msgspec.json.decode(row["detail"]) if row["detail"] else {}
    return {**row, "detail": detail if isinstance(detail, dict) else {}}


def _acts(backend: AdminBackend, query: RequestQuery) -> list[Mapping[str, Any]]:
    begin, end = query.begin / MICROS - _BEFORE, query.end / MICROS
    return [each._asdict() for each in backend.store.read_audit(MOST_ACTS) if begin <= each.at <= end]


async def _samples(backend: AdminBackend) -> Samples:
    values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in (await backend.metrics()).collect():
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return Samples(values)
