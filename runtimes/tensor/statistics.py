"""Counts and times of a version of a model, reported in Triton's form.

Each end of a request or a batch adds a few numbers; the report is built on demand. Times are seconds here and
nanoseconds in the report.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from runtimes.histogram import Histogram

BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Seconds: the upper ends of a histogram's buckets, the last of which is open."""

MAX_RESPONSES = 64
Reason = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
"""The reason of a failure in Triton's metrics: not started, cancelled, the model, anything else."""


class Sized:
    """Executions of one batch size."""

    __slots__ = ("count", "infer")

    def __init__(self) -> None:
        self.count = 0
        self.infer = 0.0


class ResponseStatistics:
    """The first, second … response to requests of a decoupled model."""

    __slots__ = ("cancelled", "count", "empty", "failed", "seconds")

    def __init__(self) -> None:
        self.count = self.failed = self.cancelled = self.empty = 0
        self.seconds = 0.0
        """The time since the previous response."""

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds

    def missed(self, *, cancelled: bool) -> None:
        """Count a response that was not sent."""
        if cancelled:
            self.cancelled += 1
        else:
            self.failed += 1


class ModelStatistics:
    """Statistics of one version of a model since it was loaded.

    A request that the cache answers is a success without an execution. Times of a batch count for each request in
    it, as in Triton: the times of a request's parts add up to the time of the request. Joining of inputs and splitting
    of outputs are part of `infer`, because the copies do both while they compute; the report has 0 for them.
    """

    __slots__ = (
        "batches", "cache_hits", "cache_misses", "durations", "executions", "failures", "hit_seconds", "infer",
        "inferences", "last_inference", "miss_seconds", "queue", "queued", "requests",
        "responses", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.inferences = self.executions = self.requests = 0
        self.responses: list[ResponseStatistics] = []
        """Responses of a decoupled model, by their index."""
        self.queued = 0
        """Requests that were part of an execution."""
        self.queue = self.infer = 0.0
        self.batches: dict[int, Sized] = {}
        self.durations = Histogram(BOUNDS)
        """Durations of successful requests, from decoded to answered."""
        self.waits = Histogram(BOUNDS)
        """Mean wait of the requests of each execution."""
        self.failures: dict[Reason, Histogram] = {}
        self.cache_hits = self.cache_misses = 0
        self.hit_seconds = self.miss_seconds = 0.0
        self.last_inference = 0.0

    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """Count an executed batch. `queued` is the sum over its requests."""
        self.executions += 1
        self.inferences += rows
        self.queued += requests
        self.queue += queued
        self.infer += computed * requests
        self.waits.add(queued / requests if requests else 0.0)
        sized = self.batches.get(rows)
        if sized is None:
            sized = self.batches[rows] = Sized()
        sized.count += 1
        sized.infer += computed

    def succeeded(self, seconds: float) -> None:
        """Count a successful request."""
        self.requests += 1
        self.durations.add(seconds)
        self.last_inference = time.time()

    def failed(self, seconds: float, reason: Reason) -> None:
        """Count a failed request for this version."""
        if reason not in self.failures:
            self.failures[reason] = Histogram(BOUNDS)
        self.failures[reason].add(seconds)

    def response(self, index: int) -> ResponseStatistics:
        """The counters of responses at this index; responses beyond the last index share them."""
        index = min(index, MAX_RESPONSES - 1)
        while len(self.responses) <= index:
            self.responses.append(ResponseStatistics())
        return self.responses[index]

    def cache_hit(self, seconds: float) -> None:
        """Count a response from the cache, and the seconds of the look-up."""
        self.cache_hits += 1
        self.hit_seconds += seconds

    def cache_missed(self, seconds: float) -> None:
        """Count a request without a cached response, and the seconds of look-up and insertion."""
        self.cache_misses += 1
        self.miss_seconds += seconds

    def report(
        self, name: str, version: str, memory: int = 0, extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One entry of Triton's `model_stats`, with our own fields."""
        entry: dict[str, Any] = {
            "name": name,
            "version": version,
            "last_inference": int(self.last_inference * 1000),
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": self._parts(),
            "response_stats": {str(at): _response(one) for at, one in enumerate(self.responses)},
            "batch_stats": [_batch(size, self.batches[size]) for size in sorted(self.batches)],
            "memory_usage": [{"type": "CPU", "id": 0, "byte_size": memory}] if memory else [],
        }
        return {**entry, **extra} if extra else entry

    def _parts(self) -> dict[str, dict[str, int]]:
        failed = sum(sum(failures.counts) for failures in self.failures.values())
        return {
            "success": _part(self.requests, self.durations.sum),
            "fail": _part(failed, sum(failures.sum for failures in self.failures.values())),
            "queue": _part(self.queued, self.queue),
            "compute_input": _part(self.queued, 0.0),
            "compute_infer": _part(self.queued, self.infer),
            "compute_output": _part(self.queued, 0.0),
            "cache_hit": _part(self.cache_hits, self.hit_seconds),
            "cache_miss": _part(self.cache_misses, self.miss_seconds),
        }


def _batch(size: int, sized: Sized) -> dict[str, Any]:
    return {
        "batch_size": size,
        "compute_input": _part(sized.count, 0.0),
        "compute_infer": _part(sized.count, sized.infer),
        "compute_output": _part(sized.count, 0.0),
    }


def _response(one: ResponseStatistics) -> dict[str, Any]:
    return {
        "compute_infer": _part(one.count, one.seconds),
        "compute_output": _part(one.count, 0.0),
        "success": _part(one.count, one.seconds),
        "fail": _part(one.failed, 0.0),
        "empty_response": _part(one.empty, 0.0),
        "cancel": _part(one.cancelled, 0.0),
    }


def _part(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
