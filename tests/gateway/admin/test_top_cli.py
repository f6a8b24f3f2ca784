"""The screen of `headrace top`: rates of two samples, hostile names, unavailable gateways."""

import io
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gateway.admin.top_cli import GatewaySample, Rates, frame

LLM = {"pool": "llm", "endpoint": "llm/1"}
Series = Mapping[tuple[tuple[str, str], ...], float]
STATE: dict[str, Any] = {
    "accepting": True,
    "in_flight": 3,
    "endpoints": [
        {"address": "http://a:1", "health": "healthy", "breaker": "closed", "in_flight": 2} | LLM,
        {"address": "http://b:1", "health": "unhealthy", "breaker": "open", "in_flight": 0} | LLM,
    ],
    "queues": [{"pool": "llm", "waiting": 7, "served_per_second": 2.5}],
    "tenants": [{"tenant": "acme", "in_flight": 3}],
}  # fmt: skip


def sample(at: float, state: dict[str, Any] | None = None, **metrics: Series) -> GatewaySample:
    values = {name: {frozenset(labels): value for labels, value in one.items()} for name, one in metrics.items()}
    return GatewaySample(at, STATE if state is None else state, values)


def requests(ok: float, failed: float, refused: float) -> Series:
    common = (("tenant", "acme"), ("model", "chat"))
    return {
        (*common, ("status", "200"), ("error", "")): ok,
        (*common, ("status", "502"), ("error", "backend")): failed,
        (*common, ("status", "429"), ("error", "capacity")): refused,
    }


def printed(one: GatewaySample, rates: Rates) -> str:
    output = io.StringIO()
    Console(file=output, width=200, color_system=None).print(frame(one, rates))
    return output.getvalue()


def test_rates_are_of_the_time_between_two_samples() -> None:
    before = sample(10.0, headrace_requests_total=requests(100, 5, 7))
    after = sample(12.0, headrace_requests_total=requests(140, 9, 27))
    rates = Rates(before, after)
    assert rates.by("headrace_requests_total", "model") == {("chat",): 32.0}
    assert rates.failures("model") == {("chat",): 2.0}
    assert Rates(after, sample(13.0, headrace_requests_total=requests(3, 0, 0))).by("headrace_requests_total") == {
        (): 3.0
    }
    lines = printed(after, rates).splitlines()
    assert lines[0].split("   ") == [
        "serving", "3 under way", "7 waiting", "32.0 requests/s", "2.0 failures/s", "0 tokens/s", "0 rows/s",
    ]  # fmt: skip
    assert [line.split() for line in lines if "http://" in line] == [
        ["llm", "http://a:1", "healthy", "closed", "2"],
        ["http://b:1", "unhealthy", "open", "0"],
    ]
    assert [line.split() for line in lines if line.startswith(("chat", "acme"))] == [
        ["chat", "32.0", "2.0", "0"],
        ["acme", "32.0", "3", "10.0"],
    ]


def test_refusals_are_shown_by_cause() -> None:
    quota = (("tenant", "acme"), ("cause", "upstream_quota"), ("unit", ""), ("per", ""))
    limit = (("tenant", "acme"), ("cause", "limit"), ("unit", "requests"), ("per", "key"))
    before = sample(10.0, headrace_refusals_total={quota: 1.0, limit: 5.0})
    after = sample(12.0, headrace_refusals_total={quota: 61.0, limit: 5.0})
    lines = printed(after, Rates(before, after)).splitlines()
    assert [line.split() for line in lines if line.startswith("upstream_quota")] == [["upstream_quota", "30.0"]]
    assert not [line for line in lines if line.startswith("limit")]


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_the_bound_of_its_range(counts: list[int], share: float) -> None:
    bounds = [("0.1", 0.1), ("1.0", 1.0), ("+Inf", float("inf"))]
    values = [bound for (_, bound), count in zip(bounds, counts, strict=True) for _ in range(count)]
    total = 0
    ranges: dict[tuple[tuple[str, str], ...], float] = {}
    for (name, _), count in zip(bounds, counts, strict=True):
        total += count
        ranges[(("model", "chat"), ("le", name))] = float(total)
    made = Rates(sample(0.0), sample(1.0, headrace_seconds_bucket=ranges)).quantile(share, "headrace_seconds", "model")
    reached = next((v for i, v in enumerate(values, 1) if i >= share * len(values)), None)
    assert made == ({} if reached is None else {"chat": reached})


@given(st.text(max_size=30))
def test_no_name_controls_the_terminal(name: str) -> None:
    state = {**STATE, "tenants": [{"tenant": f"{name}\x1b[2J[bold]", "in_flight": 1}]}
    one = sample(1.0, state)
    text = printed(one, Rates(one, one))
    assert not set(text) & {chr(code) for code in (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0))}
    assert "[bold]" in text


def test_replicas_have_their_reason_and_a_failure_comes_first() -> None:
    scale = {"pool": "llm", "replicas": 2, "ready": 1, "desired": 3, "max": 4, "failure": "", "reason": "12.0 at 4"}
    rates = Rates(sample(1.0), sample(2.0))
    shown = printed(sample(2.0, {**STATE, "replicas": [scale]}), rates)
    assert "Replicas" in shown
    assert "12.0 at 4" in shown
    failing = {**scale, "failure": "replica 1 ended with status 3"}
    assert "failing: replica 1 ended with status 3" in printed(sample(2.0, {**STATE, "replicas": [failing]}), rates)
    assert "Replicas" not in printed(sample(2.0, {**STATE, "replicas": [{**scale, "max": 1}]}), rates)
