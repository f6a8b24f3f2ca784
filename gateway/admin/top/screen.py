"""A frame of the screen. All names are shown as text: a terminal never interprets them."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.admin.top.rates import Rates
from gateway.admin.top.source import GatewaySample
from gateway.terminal import plain

_GOOD, _BAD, _DIM = "green", "bold red", "dim"
_HEALTH = {"healthy": _GOOD, "unhealthy": _BAD}


def frame(sample: GatewaySample, rates: Rates) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_summary(sample, rates), _pools(sample, rates)]
    if sample.state.get("queues"):
        parts.append(_queues(sample))
    if any(scale["max"] > 1 or scale["failure"] for scale in sample.state.get("replicas", ())):
        parts.append(_replicas(sample))
    return Group(*parts, _models(rates), _tenants(sample, rates))


def _summary(sample: GatewaySample, rates: Rates) -> Text:
    state = sample.state
    requests = sum(rates.by("headrace_requests_total").values())
    failures = sum(rates.failures().values())
    tokens = sum(rates.by("headrace_tokens_total").values())
    rows = sum(rates.by("headrace_rows_total").values())
    waiting = sum(queue["waiting"] for queue in state.get("queues", ()))
    parts = [
        Text("serving" if state["accepting"] else "draining", _GOOD if state["accepting"] else _BAD),
        Text(f"{state['in_flight']} under way"),
        Text(f"{waiting} waiting"),
        Text(f"{requests:.1f} requests/s"),
        Text(f"{failures:.1f} failures/s", _BAD if failures else ""),
        Text(f"{tokens:,.0f} tokens/s"),
        Text(f"{rows:,.0f} rows/s"),
    ]
    return Text("   ").join(parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style=_DIM)
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < 2 else "right", no_wrap=True, overflow="ellipsis")
    return table


def _pools(sample: GatewaySample, rates: Rates) -> Table:
    table = _table("Pools", "pool", "endpoint", "health", "breaker", "under way", "first chunk p95")
    slowest = rates.quantile(0.95, "headrace_time_to_first_chunk_seconds", "pool")
    previous = ""
    for each in sorted(sample.state.get("endpoints", ()), key=lambda e: (e["pool"], e["endpoint"])):
        is_first, previous = each["pool"] != previous, each["pool"]
        health = "drained" if each.get("drained") else each["health"]
        breaker = each["breaker"]
        table.add_row(
            plain(each["pool"]) if is_first else "",
            plain(each.get("address") or each["endpoint"]),
            Text(health, _HEALTH.get(health, "")),
            Text(breaker, "" if breaker == "closed" else _BAD),
            str(each["in_flight"]),
            _seconds(slowest.get(each["pool"])) if is_first else "",
        )
    return table


def _queues(sample: GatewaySample) -> Table:
    table = _table("Queues", "pool", "", "waiting", "served/s")
    for queue in sample.state["queues"]:
        served = queue["served_per_second"]
        table.add_row(plain(queue["pool"]), "", str(queue["waiting"]), "" if served is None else f"{served:.1f}")
    return table


def _replicas(sample: GatewaySample) -> Table:
    table = _table("Replicas", "pool", "reason", "ready", "running", "needed")
    for scale in sample.state["replicas"]:
        reason = Text(f"failing: {plain(scale['failure'])}", _BAD) if scale["failure"] else plain(scale["reason"])
        counts = (str(scale[name]) for name in ("ready", "replicas", "desired"))
        table.add_row(plain(scale["pool"]), reason, *counts)
    return table


def _models(rates: Rates) -> Table:
    table = _table("Models", "model", "", "requests/s", "failures/s", "p50", "p95", "tokens/s")
    requests, failures = rates.by("headrace_requests_total", "model"), rates.failures("model")
    tokens = rates.by("headrace_tokens_total", "model")
    half, most = (rates.quantile(share, "headrace_request_duration_seconds", "model") for share in (0.5, 0.95))
    for (model,), rate in _largest(requests):
        failed = failures.get((model,), 0.0)
        table.add_row(
            plain(model or "–"),
            "",
            f"{rate:.1f}",
            Text(f"{failed:.1f}", _BAD if failed else ""),
            _seconds(half.get(model)),
            _seconds(most.get(model)),
            f"{tokens.get((model,), 0.0):,.0f}",
        )
    return table


def _tenants(sample: GatewaySample, rates: Rates) -> Table:
    table = _table("Tenants", "tenant", "", "requests/s", "under way", "refused by limits/s", "spend/h", "budget left")
    requests = rates.by("headrace_requests_total", "tenant")
    refused = rates.by("headrace_requests_total", "tenant", where=lambda series: series.get("status") == "429")
    under_way = {each["tenant"]: each["in_flight"] for each in sample.state.get("tenants", ())}
    spend = _spend(sample, rates)
    for (tenant,), rate in _largest({**{(name,): 0.0 for name in under_way}, **requests}):
        table.add_row(
            plain(tenant or "–"),
            "",
            f"{rate:.1f}",
            str(under_way.get(tenant, "")),
            f"{refused.get((tenant,), 0.0):.1f}",
            spend.get(tenant, ""),
            _left(sample, tenant),
        )
    return table


def _spend(sample: GatewaySample, rates: Rates) -> dict[str, str]:
    """The money of an hour at the present rate, by tenant."""
    shown: dict[str, str] = {}
    for name in sample.metrics:
        match name.split("_"):
            case "headrace", "spend", currency, "total":  # the currency is a part of the name
                for (tenant,), rate in rates.by(name, "tenant").items():
                    shown[tenant] = f"{rate * 3600:.4g} {currency}"
    return shown


def _left(sample: GatewaySample, tenant: str) -> str:
    ratios = sample.metrics.get("headrace_tenant_budget_remaining_ratio", {})
    left = [ratio for labels, ratio in ratios.items() if ("tenant", tenant) in labels]
    return f"{min(left):.0%}" if left else ""


def _largest(rates: Mapping[tuple[str, ...], float]) -> Iterable[tuple[Any, float]]:
    return sorted(rates.items(), key=lambda item: (-item[1], item[0]))


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return "> 600 s" if value == float("inf") else f"≤ {value * 1000:g} ms" if value < 1 else f"≤ {value:g} s"
