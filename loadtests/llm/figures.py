"""From answers to figures. Their names end in the workload's: they are the keys of the JSON line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from loadtests.llm.client import Load


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server's processes used meanwhile."""

    cpu_s: float
    resident_bytes: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of them."""
    return sorted(values)[ceil(len(values) * share) - 1]


def figures(workload: str, load: Load, cost: Cost) -> Mapping[str, float]:
    """Of one point without a failure."""
    tokens = sum(answer.tokens for answer in load.answers)
    first = [1000 * answer.first_s for answer in load.answers]
    gaps = [1000 * gap for answer in load.answers for gap in answer.gaps_s] or [0.0]
    result = {
        "tokens_per_s": tokens / load.wall_s,
        "first_p50_ms": percentile(first, 0.5),
        "first_p99_ms": percentile(first, 0.99),
        "gap_p50_ms": percentile(gaps, 0.5),
        "gap_p99_ms": percentile(gaps, 0.99),
        "cpu_s_per_1k_tokens": 1000 * cost.cpu_s / tokens,
        "rss_mb": cost.resident_bytes / 1e6,
        "client_cores": load.client_cpu_s / load.wall_s,
    }
    return {f"{name}_{workload}": value for name, value in result.items()}
