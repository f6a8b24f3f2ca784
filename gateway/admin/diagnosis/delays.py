"""Where slow requests spend their time: before the upstream, between attempts, until the first token, or after it."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gateway.admin.diagnosis.evidence import Evidence
from gateway.admin.diagnosis.finding import Finding, Row, counted, example, grouped, named, plain
from gateway.admin.diagnosis.question import SLOW

FEWEST = 5
"""Requests without which a comparison means nothing."""
_MUCH = 0.4
"""The share of the time at which a phase is a cause."""
_PHASES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "queue": (
        "requests_wait_in_queue",
        "Slow requests wait for a place at pool {pool}.",
        (
            "look at the waiting requests: `headrace top`",
            "add an endpoint to the pool, or raise its `queue.max_in_flight` if the servers have room",
        ),
    ),
    "gateway": (
        "gateway_is_slow",
        "Slow requests spend their time in the gateway before they are sent.",
        (
            "look at the processor time of the gateway's processes: `top`",
            "add `workers`, or another gateway",
        ),
    ),
    "retries": (
        "attempts_fail",
        "Slow requests fail at one endpoint of pool {pool} and are repeated at another.",
        (
            "look at the attempts of one request, and at the endpoint of the first one",
            "drain an endpoint that fails often",
        ),
    ),
    "first": (
        "upstream_begins_late",
        "The servers of pool {pool} take long until the first byte of an answer.",
        (
            "look at the queue and the load of the servers themselves",
            "compare the prompts' lengths: `headrace requests list --model MODEL --json`",
        ),
    ),
    "rest": (
        "answers_are_long",
        "Answers of pool {pool} are long, or arrive slowly once they have begun.",
        (
            "compare the tokens of slow and of fast answers",
            "bound the length: `rewrite: {{defaults: {{max_tokens: ...}}}}`",
        ),
    ),
}


def slow_requests(evidence: Evidence) -> Iterator[Finding]:
    """The phase that dominates the slowest tenth of a pool's answers, for each pool with enough of them."""
    if evidence.question.symptom not in ("", SLOW):
        return
    answered = [row for row in evidence.rows if not row["error"] and row["pool"] and row["duration"] > 0]
    for pool, rows in grouped(answered, lambda row: row["pool"]).items():
        if len(rows) >= FEWEST:
            yield from _of_pool(pool, rows, always=evidence.question.symptom == SLOW)


def _of_pool(pool: str, rows: Sequence[Row], *, always: bool) -> Iterator[Finding]:
    ordered = sorted(rows, key=lambda row: int(row["duration"]))
    slowest = ordered[-max(FEWEST, len(ordered) // 10) :]
    rest = ordered[: -len(slowest)] or ordered
    typical, slow = median(row["duration"] for row in rest), median(row["duration"] for row in slowest)
    if not always and slow < max(3 * typical, 1_000_000):
        return
    spent = dict.fromkeys(_PHASES, 0.0)
    for row in slowest:
        for phase, part in _phases(row).items():
            spent[phase] += part
    whole = sum(spent.values()) or 1.0
    for phase, part in sorted(spent.items(), key=lambda item: -item[1]):
        if part / whole < _MUCH:
            return
        name, sentence, steps = _PHASES[phase]
        lines = (
            f"median {slow / 1e6:.2f} s in the slowest {len(slowest)} of {len(rows)}, else {typical / 1e6:.2f} s",
            f"{part / whole:.0%} of their time",
            counted(slowest),
            *named(slowest, "endpoint", "endpoints"),
            *named(slowest, "model", "models"),
        )
        shown = tuple(step.replace("{{", "{").replace("}}", "}") for step in steps)
        yield Finding(name, sentence.format(pool=plain(pool)), lines, (*example(slowest), *shown), len(slowest))


def _phases(row: Row) -> dict[str, float]:
    """Milliseconds of a request by phase. They add up to its duration."""
    detail, total = row["detail"], row["duration"] / 1000
    queue = float(detail.get("queue_ms", 0.0))
    sent = [float(at) for _, at in detail.get("attempts", ())]
    first = row["first_chunk"] / 1000 if row["first_chunk"] >= 0 else total
    begun = sent[0] if sent else 0.0
    last = sent[-1] if sent else 0.0
    parts = {"queue": queue, "gateway": max(0.0, begun - queue), "retries": max(0.0, last - begun)}
    return parts | {"first": max(0.0, first - last), "rest": max(0.0, total - first)}
