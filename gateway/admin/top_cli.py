"""The command `headrace top`. All names are shown as text: a terminal never interprets them."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import aiohttp
import msgspec
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.auth.terminal import ADMIN_KEY, ConfigFile, admin_url, plain_errors, settings_of, stop
from gateway.telemetry.figures import is_failure
from gateway.terminal import plain

Labels = frozenset[tuple[str, str]]
SECONDS = 10.0
_GOOD, _BAD, _DIM = "green", "bold red", "dim"
_HEALTH = {"healthy": _GOOD, "unhealthy": _BAD}


class SampleUnavailable(Exception):
    """The gateway gave no sample."""


class Refused(SampleUnavailable):
    """The credential is missing or insufficient: another attempt has the same result."""


class GatewaySample(NamedTuple):
    """A gateway at one time."""

    at: float
    """Monotonic seconds."""
    state: Mapping[str, Any]
    metrics: Mapping[str, Mapping[Labels, float]]
    """The values by name and labels."""


async def sample(http: aiohttp.ClientSession, url: str) -> GatewaySample:
    """Read the admin listener at `url`. Raises `SampleUnavailable`."""
    state, text = await _get(http, f"{url}/admin/state"), await _get(http, f"{url}/metrics")
    metrics: dict[str, dict[Labels, float]] = {}
    try:
        for each in (each for family in text_string_to_metric_families(text.decode()) for each in family.samples):
            metrics.setdefault(each.name, {})[frozenset(each.labels.items())] = each.value
        return GatewaySample(time.monotonic(), _object(state), metrics)
    except (ValueError, RecursionError) as error:
        raise SampleUnavailable(f"{url} is not the admin listener of a gateway: {error}") from None


def _object(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


async def _get(http: aiohttp.ClientSession, url: str) -> bytes:
    try:
        async with http.get(url, timeout=aiohttp.ClientTimeout(SECONDS)) as response:
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SampleUnavailable(f"{url}: {error or 'no response in time'}") from None
    if response.status in (401, 403):
        raise Refused(f"{url}: status {response.status}: set HEADRACE_ADMIN_KEY to the key of an operator")
    if response.status != 200:
        raise SampleUnavailable(f"{url}: status {response.status}")
    return body


class Rates:
    """What happened between two samples. A counter that fell began anew."""

    def __init__(self, before: GatewaySample, after: GatewaySample) -> None:
        self._before, self._after = before, after
        self._seconds = max(after.at - before.at, 1e-6)

    def by(
        self, name: str, *labels: str, where: Callable[[dict[str, str]], bool] = lambda _: True
    ) -> dict[tuple[str, ...], float]:
        """The growth of a counter a second, by the values of labels."""
        sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for series, growth in self._growths(name):
            if where(series):
                sums[tuple(series.get(label, "") for label in labels)] += growth / self._seconds
        return dict(sums)

    def failures(self, *labels: str) -> dict[tuple[str, ...], float]:
        """Failures of the service a second."""
        return self.by(
            "headrace_requests_total",
            *labels,
            where=lambda series: is_failure(series.get("error", ""), int(series.get("status") or 0)),
        )

    def quantile(self, share: float, name: str, label: str) -> dict[str, float]:
        """A quantile of a histogram, by a label: the upper bound of its range."""
        counts: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        for series, growth in self._growths(f"{name}_bucket"):
            counts[series.get(label, "")][float(series["le"])] += growth
        return {
            value: next(bound for bound in sorted(ranges) if ranges[bound] >= share * max(ranges.values()))
            for value, ranges in counts.items()
            if any(ranges.values())
        }

    def _growths(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        before = self._before.metrics.get(name, {})
        for labels, value in self._after.metrics.get(name, {}).items():
            growth = value - before.get(labels, 0.0)
            yield dict(labels), growth if growth >= 0 else value


def frame(sample: GatewaySample, rates: Rates) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_summary(sample, rates), _pools(sample, rates)]
    if sample.state.get("queues"):
        parts.append(_queues(sample))
    if any(scale["max"] > 1 or scale["failure"] for scale in sample.state.get("replicas", ())):
        parts.append(_replicas(sample))
    refusals = {labels: rate for labels, rate in rates.by("headrace_refusals_total", "cause", "unit").items() if rate}
    if refusals:
        parts.append(_refusals(refusals))
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


def _refusals(rates: Mapping[tuple[str, ...], float]) -> Table:
    table = _table("Refusals", "cause", "limit", "refused/s")
    for (cause, unit), rate in _largest(rates):
        table.add_row(plain(cause), plain(unit), f"{rate:.1f}")
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


def top(
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The admin listener. By default that of the configuration.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.2, max=60.0, help="Seconds between two samples.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    config: ConfigFile = None,
) -> None:
    """Show a running gateway: pools, queues, models and tenants. Ctrl-C ends it.

    The environment variable HEADRACE_ADMIN_KEY has the key of an operator, if the admin listener requires one.
    """
    with plain_errors():
        address = (url or admin_url(settings_of(config))).rstrip("/")
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_run(address, every, once=once))
    except SampleUnavailable as error:
        stop(str(error), status=1)


async def _run(url: str, every: float, *, once: bool) -> None:
    key = os.environ.get(ADMIN_KEY, "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        before = await sample(http, url)
        await asyncio.sleep(every)
        if once:
            Console().print(_view(before, await sample(http, url)))
            return
        with Live(Text(f"{url} …"), screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                try:
                    after = await sample(http, url)
                    live.update(_view(before, after), refresh=True)
                    before = after
                except Refused:
                    raise
                except SampleUnavailable as error:
                    live.update(plain(error), refresh=True)
                await asyncio.sleep(every)


def _view(before: GatewaySample, after: GatewaySample) -> RenderableType:
    return frame(after, Rates(before, after))
