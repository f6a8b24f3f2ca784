"""Days of requests for the simulation of scaling: arrivals and lengths.

ServeGen (Xiang et al., NSDI 2026) publishes the clients of production models: for each client and ten minutes a rate
and a distribution of the gaps, for each six hours the distributions of lengths. A day is drawn from them as its authors
do: each client is a renewal process whose rate is scaled, and whose burstiness is not.
"""

import ast
import csv
import json
from functools import lru_cache
from math import cos, gamma, pi
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DAY, WINDOW = 86_400.0, 600.0
WHOLE = (0.0, 24.0)
CLIENTS = 60
"""Clients of the invented day."""


class Day(NamedTuple):
    """Seconds since midnight, and tokens."""

    at: np.ndarray
    prompt: np.ndarray
    completion: np.ndarray


class _Span(NamedTuple):
    """Requests of one client in one window: a rate and a distribution of the gaps."""

    start: float
    rate: float
    kind: str
    shape: float


def published(folder: Path, day: int, rate: float, seed: int, hours: tuple[float, float] = WHOLE) -> Day:
    """A day of a model of ServeGen, in the mean `rate` requests a second; of the day only some hours, whole or not."""
    rng = np.random.default_rng(seed)
    clients = _clients(folder, day)
    if not clients:
        raise ValueError(f"{folder} has no client with requests on day {day}")
    factor = rate * DAY / sum(span.rate * WINDOW for spans, _ in clients for span in spans)
    first, last = (day * DAY + hour * 3600 for hour in hours)
    clients = [([span for span in spans if first <= span.start < last], lengths) for spans, lengths in clients]
    parts = [_drawn(spans, lengths, day * DAY, factor, rng) for spans, lengths in clients]
    return _sorted([part for group in parts for part in group])


def invented(rate: float, seed: int, hours: tuple[float, float] = WHOLE) -> Day:
    """A day without a trace: clients of unequal size and burstiness, with one peak in the afternoon."""
    rng = np.random.default_rng(seed)
    weights = rng.pareto(1.2, CLIENTS) + 0.1
    parts = []
    for weight, shape in zip(weights / weights.sum(), rng.uniform(0.15, 1.0, CLIENTS), strict=True):
        for start in np.arange(hours[0] * 3600, hours[1] * 3600, WINDOW):
            level = 1 - 0.6 * cos(2 * pi * (start / DAY - 0.1))
            at = _arrivals(_Span(start, rate * weight * level, "Gamma", shape), rng)
            parts.append(Day(at, rng.lognormal(6.0, 1.0, len(at)), rng.lognormal(4.5, 0.8, len(at))))
    return _sorted(parts)


@lru_cache(1)
def _clients(folder: Path, day: int) -> list[tuple[list[_Span], dict[str, Any]]]:
    """The windows of each client with requests, and its lengths."""
    clients = []
    for path in sorted(folder.glob("chunk-*-trace.csv")):
        lengths = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
        spans = _spans(path, day * DAY)
        if spans and lengths.is_file():
            clients.append((spans, json.loads(lengths.read_text())))
    return clients


def _spans(path: Path, midnight: float) -> list[_Span]:
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 6 and row[3]]
    spans = [_Span(float(row[0]), float(row[1]), row[3], float(row[4])) for row in rows]
    return [span for span in spans if midnight <= span.start < midnight + DAY and span.rate > 0]


def _drawn(
    spans: list[_Span], lengths: dict[str, Any], midnight: float, factor: float, rng: np.random.Generator
) -> list[Day]:
    changes = sorted(int(second) for second in lengths)
    tables: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    parts = []
    for span in spans:
        at = _arrivals(span._replace(start=span.start - midnight, rate=span.rate * factor), rng)
        since = max((second for second in changes if second <= span.start), default=changes[0])
        if since not in tables:
            fields = lengths[str(since)]
            tables[since] = [_table(fields[name]) for name in ("input_tokens", "output_tokens")]
        prompt, completion = (_sample(table, len(at), rng) for table in tables[since])
        parts.append(Day(at, prompt, completion))
    return parts


def _arrivals(span: _Span, rng: np.random.Generator) -> np.ndarray:
    """The arrivals of a renewal process, which begins within a gap, in one window."""
    most = int(3 * span.rate * WINDOW) + 50
    if span.kind == "Gamma":
        gaps = rng.gamma(span.shape, 1 / span.shape, most)
    else:
        gaps = rng.weibull(span.shape, most) / gamma(1 + 1 / span.shape)
    gaps /= span.rate
    at = np.cumsum(gaps) - rng.random() * gaps[0]
    arrivals: np.ndarray = span.start + at[at < WINDOW]
    return arrivals


def _table(written: str) -> tuple[np.ndarray, np.ndarray]:
    probabilities = ast.literal_eval(written) or {1: 1.0}
    return np.array(list(probabilities)), np.cumsum(list(probabilities.values()))


def _sample(table: tuple[np.ndarray, np.ndarray], count: int, rng: np.random.Generator) -> np.ndarray:
    values, sums = table
    places = np.searchsorted(sums, rng.random(count) * sums[-1])
    sampled: np.ndarray = values[np.minimum(places, len(values) - 1)]
    return sampled


def _sorted(parts: list[Day]) -> Day:
    at, prompt, completion = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    return Day(at[order], prompt[order], completion[order])
