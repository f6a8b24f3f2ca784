"""The requests for tensor servers, the load generator of each, and the names of the resulting figures."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loadtests.tensors.peer import ROWS
from loadtests.tensors.perf_analyzer import Report, write_data

Wire = Literal["json", "binary", "grpc", "plain", "waits"]
"""How: the first three by perf_analyzer; `plain` is each server's own JSON, by `load.c`; `waits` by `waits.py`."""
LENGTHS = (16, 64, 256, 512)
REQUESTS = 64  # of the mixed stream, after which it begins anew
ARGUMENTS: Mapping[Wire, Sequence[str]] = {
    "json": ("-i", "http", "--input-tensor-format", "json", "--output-tensor-format", "json"),
    "binary": ("-i", "http"),
    "grpc": ("-i", "grpc"),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, a wire, and how many requests are under way at any time."""

    model: str
    wire: Wire
    concurrency: int

    @property
    def name(self) -> str:
        """As on the command line; the figures' names end in it."""
        return f"{self.model}_{self.wire}_{self.concurrency}"

    @property
    def door(self) -> Literal["http", "grpc"]:
        return "grpc" if self.wire == "grpc" else "http"

    def arguments(self, model: str, data: Path, key: str) -> list[str]:
        """For perf_analyzer."""
        header = ["-H", f"authorization: Bearer {key}"] if key else []
        load = ["-m", model, "-b", "1", "--concurrency-range", str(self.concurrency), "--input-data", str(data)]
        return [*load, *ARGUMENTS[self.wire], *header]


WORKLOADS = {
    workload.name: workload
    for workload in (
        *(Workload("add_sub", wire, n) for wire in ("json", "binary", "grpc") for n in (1, 8, 32)),
        *(Workload("mixed", wire, n) for wire in ("binary", "grpc") for n in (8, 32)),
        *(Workload("magika", wire, n) for wire in ("binary", "grpc") for n in (1, 8)),
        *(Workload("add_sub", "plain", n) for n in (1, 8, 32)),
        *(Workload(name, "waits", 1) for name in ("echo_texts", "echo_floats")),
    )
}
MODELS = tuple(dict.fromkeys(workload.model for workload in WORKLOADS.values()))


def write_requests(folder: Path) -> dict[str, Path]:
    """The file of the requests of each model. The same for every server and round."""
    rng = random.Random(42)
    lengths = [rng.choice(LENGTHS) for _ in range(REQUESTS)]
    entries: dict[str, list[dict[str, object]]] = {
        "add_sub": [{name: _tensor(row) for name, row in ROWS.items()}],
        "mixed": [{"X": _tensor([round(rng.uniform(-1, 1), 3) for _ in range(length)])} for length in lengths],
        "magika": [{"bytes": _tensor([rng.randrange(257) for _ in range(2048)])} for _ in range(8)],
    }
    return {model: write_data(folder, model, entries[model]) for model in entries}


def _tensor(values: Sequence[float]) -> dict[str, object]:
    return {"content": values, "shape": [len(values)]}


def figures(
    workload: Workload, report: Report, cpu_s: float, requests: int, mean_batch: float | None
) -> dict[str, float]:
    """By name, which is the key in the benchmark's JSON line."""
    measured = {
        "rps": report.rps,
        "p50_ms": report.p50_ms,
        "p99_ms": report.p99_ms,
        "cpu_ms_per_request": 1000 * cpu_s / max(requests, 1),
    }
    if mean_batch is not None:
        measured["mean_batch"] = mean_batch
    return {f"{name}_{workload.name}": value for name, value in measured.items()}
