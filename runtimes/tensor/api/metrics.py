"""The metrics page for Prometheus: Triton's names, for its dashboards, and our own histograms.

It is built from the statistics at each scrape. Triton's counters lack the `_total` that Prometheus' own library would
add to them, so the text is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from runtimes.histogram import Histogram
from runtimes.tensor.instances.thread import left_alone
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.records import VersionRecord
from runtimes.tensor.requests.custom_metrics import CustomFamily, CustomMetrics
from runtimes.tensor.statistics import ModelStatistics
from runtimes.tensor.stores import PulledStore

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Number = int | float
Labels = Mapping[str, str]
_COUNTERS: tuple[tuple[str, str, Callable[[ModelStatistics], Number]], ...] = (
    ("nv_inference_request_success", "Requests that were answered.", lambda s: s.requests),
    ("nv_inference_count", "Rows that were computed.", lambda s: s.inferences),
    ("nv_inference_exec_count", "Batches that were computed.", lambda s: s.executions),
    ("nv_inference_request_duration_us", "Time of requests that were answered.", lambda s: _us(s.durations.sum)),
    ("nv_inference_queue_duration_us", "Time that requests waited.", lambda s: _us(s.queue)),
    ("nv_inference_compute_input_duration_us", "Always 0: joining is part of infer.", lambda _: 0),
    ("nv_inference_compute_infer_duration_us", "Time that requests were computed.", lambda s: _us(s.infer)),
    ("nv_inference_compute_output_duration_us", "Always 0: splitting is part of infer.", lambda _: 0),
    ("nv_cache_num_hits_per_model", "Requests that the cache answered.", lambda s: s.cache_hits),
    ("nv_cache_num_misses_per_model", "Requests that the cache did not answer.", lambda s: s.cache_misses),
    (
        "nv_cache_hit_duration_per_model",
        "Time of look-ups with a response, in us.",
        lambda s: _us(s.hit_seconds),
    ),
    (
        "nv_cache_miss_duration_per_model",
        "Time of look-ups without one, in us.",
        lambda s: _us(s.miss_seconds),
    ),
)


class Metrics:
    """The metrics of one server."""

    def __init__(
        self, manager: ModelManager, custom: CustomMetrics | None = None, stores: tuple[PulledStore, ...] = ()
    ) -> None:
        self._manager = manager
        self._stores = stores
        self._custom = custom or CustomMetrics()
        self._cpu = (0, 0)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        records = [(_labels(name, record), record) for name, record in self._manager.table.records()]
        lines: list[str] = []
        for name, meaning, value in _COUNTERS:
            lines += _family(name, "counter", meaning, [(at, value(record.statistics)) for at, record in records])
        lines += _failures(records)
        lines += _states(records)
        lines += _drift(records)
        lines += _histogram("headrace_tensor_request_duration_seconds", "Requests that were answered.", (
            (at, record.statistics.durations) for at, record in records
        ))  # fmt: skip
        lines += _histogram("headrace_tensor_queue_duration_seconds", "Mean wait of each batch's requests.", (
            (at, record.statistics.waits) for at, record in records
        ))  # fmt: skip
        lines += _family("headrace_tensor_threads_left_alone", "gauge", "Threads that hang and were replaced.", (
            ({"model": name}, count) for name, count in left_alone().items()
        ))  # fmt: skip
        lines += _of_stores(self._stores)
        lines += self._machine()
        for custom in self._custom:
            lines += _custom(custom)
        return "\n".join((*lines, "")).encode()

    def _machine(self) -> list[str]:
        total, idle = _cpu_times()
        spent, rested = total - self._cpu[0], idle - self._cpu[1]
        self._cpu = (total, idle)
        memory, free = _memory()
        return [
            *_family("nv_cpu_utilization", "gauge", "Use of all cores since the last scrape, 0 to 1.", [
                ({}, round(1 - rested / spent, 4) if spent else 0)
            ]),
            *_family("nv_cpu_memory_total_bytes", "gauge", "Of the machine.", [({}, memory)]),
            *_family("nv_cpu_memory_used_bytes", "gauge", "Of the machine.", [({}, memory - free)]),
        ]  # fmt: skip


def _of_stores(stores: Iterable[PulledStore]) -> list[str]:
    places = [({"repository": store.address.label}, store) for store in stores]
    if not places:
        return []
    return [
        *_family("headrace_tensor_repository_stale", "gauge", "1 if the last pull of a repository failed.", [
            (at, int(bool(store.problem))) for at, store in places
        ]),
        *_family("headrace_tensor_repository_pull_failures_total", "counter", "Pulls that failed.", [
            (at, store.failures) for at, store in places
        ]),
        *_family("headrace_tensor_repository_pulled_bytes_total", "counter", "Bytes that pulls transferred.", [
            (at, store.transferred) for at, store in places
        ]),
        *_family("headrace_tensor_repository_bytes", "gauge", "Size of the files at the last pull.", [
            (at, store.size) for at, store in places
        ]),
        *_family("headrace_tensor_repository_pulled_timestamp_seconds", "gauge", "Time of the last good pull.", [
            (at, round(store.succeeded_at, 3)) for at, store in places
        ]),
    ]  # fmt: skip


def _failures(records: Iterable[tuple[Labels, VersionRecord]]) -> list[str]:
    samples = [
        ({**at, "reason": reason}, sum(histogram.counts))
        for at, record in records
        for reason, histogram in sorted(record.statistics.failures.items())
    ]
    return _family("nv_inference_request_failure", "counter", "Requests that were not answered.", samples)


def _states(records: Iterable[tuple[Labels, VersionRecord]]) -> list[str]:
    records = list(records)
    served = [(at, record.served) for at, record in records if record.served is not None]
    restarts = [(at, sum(copy.restarts for copy in one.instances)) for at, one in served]
    return [
        *_family("nv_inference_pending_request_count", "gauge", "Waiting requests.", [
            (at, one.scheduler.waiting) for at, one in served
        ]),
        *_family("headrace_tensor_in_flight", "gauge", "Requests in flight.", [
            (at, one.leases) for at, one in served
        ]),
        *_family("nv_model_load_duration_secs", "gauge", "Load time of the version in service.", [
            (at, round(one.load_seconds, 3)) for at, one in served
        ]),
        *_family("headrace_tensor_model_ready", "gauge", "1 if the version serves requests, perhaps after a load.", [
            (at, int(record.usable)) for at, record in records
        ]),
        *_family("headrace_tensor_model_memory_bytes", "gauge", "Memory of a loaded version.", [
            (at, one.memory_bytes) for at, one in served
        ]),
        *_family("headrace_tensor_instance_restarts_total", "counter", "Copies that died or hung.", restarts),
        *_family("headrace_tensor_model_loads_total", "counter", "Loads that succeeded.", [
            (at, record.loads) for at, record in records
        ]),
        *_family("headrace_tensor_model_load_failures_total", "counter", "Loads that failed.", [
            (at, record.failures) for at, record in records
        ]),
    ]  # fmt: skip


def _drift(records: Iterable[tuple[Labels, VersionRecord]]) -> list[str]:
    """The last window of each version whose drift is followed; no line if there is none."""
    followed = [
        (at, one.drift) for at, record in records if (one := record.served) is not None and one.drift is not None
    ]
    if not followed:
        return []
    reports = [(at, report) for at, monitor in followed if (report := monitor.report) is not None]
    features = [({**at, "feature": one.name}, one) for at, report in reports for one in report.features]
    return [
        *_family("headrace_tensor_drift_psi", "gauge", "Stability index of the last window.", [
            (at, round(one.psi, 6)) for at, one in features
        ]),
        *_family("headrace_tensor_drift_ks", "gauge", "Kolmogorov-Smirnov statistic of the last window.", [
            (at, round(one.ks, 6)) for at, one in features if one.ks is not None
        ]),
        *_family("headrace_tensor_drift_share", "gauge", "Share of each class of an output in the last window.", [
            ({**at, "label": label}, round(share, 6)) for at, one in features for label, share in one.shares.items()
        ]),
        *_family("headrace_tensor_drift_window_rows", "gauge", "Rows of the last window.", [
            (at, report.rows) for at, report in reports
        ]),
        *_family("headrace_tensor_drift_rows_total", "counter", "Rows that were compared.", [
            (at, monitor.rows) for at, monitor in followed
        ]),
        *_family("headrace_tensor_drift_skipped_total", "counter", "Requests that were not compared.", [
            (at, monitor.skipped) for at, monitor in followed
        ]),
    ]  # fmt: skip


def _histogram(name: str, meaning: str, each: Iterable[tuple[Labels, Histogram]]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} histogram"]
    for at, histogram in each:
        for bound, count in histogram.buckets():
            lines.append(_sample(f"{name}_bucket", {**at, "le": bound}, count))
        lines.append(_sample(f"{name}_sum", at, round(histogram.sum, 9)))
        lines.append(_sample(f"{name}_count", at, sum(histogram.counts)))
    return lines


def _family(name: str, kind: str, meaning: str, samples: Iterable[tuple[Labels, Number]]) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *(_sample(name, at, value) for at, value in samples)]


def _sample(name: str, labels: Labels, value: Number) -> str:
    pairs = ",".join([f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items()])
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _custom(family: CustomFamily) -> list[str]:
    """A metric that a model has defined."""
    lines = [f"# HELP {family.name} {family.description}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in family.values.items():
        at = dict(labels)
        if family.kind != "histogram":
            lines.append(_sample(family.name, at, _short(value.value)))
            continue
        total = 0
        for bound, count in zip((*(f"{bound:g}" for bound in value.bounds), "+Inf"), value.counts, strict=True):
            total += count
            lines.append(_sample(f"{family.name}_bucket", {**at, "le": bound}, total))
        lines.append(_sample(f"{family.name}_sum", at, _short(value.value)))
        lines.append(_sample(f"{family.name}_count", at, total))
    return lines


def _short(value: float) -> Number:
    return int(value) if value.is_integer() else value


def _labels(name: str, record: VersionRecord) -> Labels:
    return {"model": name, "version": str(record.number)}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _cpu_times() -> tuple[int, int]:
    """All time and idle time of all cores."""
    times = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(times), times[3] + times[4]


def _memory() -> tuple[int, int]:
    """Bytes of total and of available memory."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemTotal"].split()[0]) * 1024, int(fields["MemAvailable"].split()[0]) * 1024
