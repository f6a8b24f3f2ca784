"""Invoices are the sum of the stored requests, to the pico, over any schedule of crashes, reloads and workers."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import Config
from config.schema.money import format_amount
from gateway.features.requests.lines import HOUR_MICROS, PART
from gateway.features.requests.live import LiveRequests
from gateway.features.requests.search import LabelTest, RequestQuery
from gateway.features.requests.unrecorded import unrecorded
from gateway.features.usage.export import invoice, month_of
from gateway.features.usage.labels import OTHERS
from gateway.features.usage.live import LiveUsage
from gateway.features.usage.report import PER_LINE, UsageQuery
from gateway.process.host_writers import HostWriters
from tests.support.gateways import PEPPER, config
from tests.support.stored_requests import record
from tests.support.usage_hosts import NOVEMBER

MONTH = "2026-11"


class WorkerOfHost:
    """The counter and the sink of one process, which receive each ended request."""

    def __init__(self, settings: Config) -> None:
        process = uuid4().hex
        self.usage, self.requests = LiveUsage(process), LiveRequests(process)
        self.reload(settings)

    def reload(self, settings: Config) -> None:
        self.usage.configure(settings)
        self.requests.configure(settings)

    def end(self, id_: str, tenant: str, picos: int, at: float) -> None:
        one = record(id_, tenant, at, picos)
        assert self.usage.counter is not None
        assert self.requests.sink is not None
        self.usage.counter.count(one)
        self.requests.sink.put(one)

    def close(self) -> None:
        self.usage.close()
        self.requests.close()


place = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("end"), place, st.sampled_from(["acme", "beta"]), st.integers(0, 10**15)),
        st.tuples(st.just("crash"), place),
        st.tuples(st.just("reload"), place, st.integers(0, 1)),
        st.tuples(st.just("write")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("later"), st.integers(1, 30 * 3600)),
    ),
    max_size=30,
)


@settings(max_examples=15, deadline=None)
@given(steps)
async def test_invoices_are_the_sum_of_the_records(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """The records of a crashed process that were not spooled yet are stored as their sums."""
    folder: Path = tmp_path_factory.mktemp("bills")
    state = {"database": f"sqlite:///{folder}/state.db"}
    kinds = [config(state=state, usage={}, requests={"retention": "3650d", "flush": flush}) for flush in ("1s", "2s")]
    writers = HostWriters(lambda: kinds[0], lambda: PEPPER)
    await writers.usage.write()  # one thread makes the database: a second one would have to wait for it
    workers = [WorkerOfHost(kinds[0]) for _ in range(3)]
    now = float(NOVEMBER)
    ended: Counter[str] = Counter()
    for number, step in enumerate(steps):
        match step:
            case "end", at, tenant, picos:
                workers[at].end(f"r{number}", tenant, picos, now)
                ended[tenant] += picos
            case "crash", at:
                workers[at].close()  # as the kernel closes its files
                workers[at] = WorkerOfHost(kinds[0])
            case "reload", at, kind:
                workers[at].reload(kinds[kind])
            case ("write",):
                await asyncio.gather(writers.usage.write(), writers.requests.write())
            case ("restart",):
                writers = HostWriters(lambda: kinds[0], lambda: PEPPER)
            case "later", seconds:
                now = min(now + seconds, NOVEMBER + 29 * 86400.0)
    for worker in workers:
        worker.close()
    await writers.usage.write()
    await writers.requests.write()
    bills, records = await writers.usage.store(), await writers.requests.store()
    for tenant in ("acme", "beta"):
        lines = bills.report(UsageQuery(*month_of(MONTH), PER_LINE, None, tenant))
        billed = invoice(tenant, MONTH, lines)["totals"]
        expected = [{"currency": "usd", "amount": format_amount(ended[tenant])}]
        assert billed == (expected if lines else [])
        query = RequestQuery(0, 2**60, (LabelTest("tenant", tenant),), limit=1000)
        stored = sum(row["picos"] for row in records.search(query))
        assert stored == sum(total["picos"] for total in records.totals(query))
        assert stored == ended[tenant]
        number = sum(total["requests"] for total in records.totals(query))
        assert number == sum(line["requests"] for line in lines)
    await writers.aclose()


place_of_usage = st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.sampled_from(["k", "l"]), st.booleans())


@given(st.lists(st.tuples(place_of_usage, st.integers(0, 10**20), st.booleans()), max_size=30))
def test_the_difference_is_exact(requests: list[Any]) -> None:
    """Requests with too many labels are counted under a shared key, and recorded under their own."""
    counted: list[dict[str, Any]] = []
    recorded: list[dict[str, Any]] = []
    for (hour, tenant, key, is_shared), picos, is_lost in requests:
        labels = {"hour": hour, "tenant": tenant, "model": "m", "currency": "usd", "team": "", "arm": ""}
        amounts = {"requests": 1, "prompt_tokens": 2, "completion_tokens": 3, "rows": 0, "bytes": 0, "device_us": 4}
        counted.append({**labels, **amounts, "key": OTHERS if is_shared else key, "picos": picos})
        if not is_lost:
            high, low = divmod(picos, PART)
            recorded.append({**labels, **amounts, "key": key, "picos_high": high, "picos_low": low})
    lines = unrecorded(counted, recorded, ())
    lost = Counter[tuple[int, str]]()
    for (hour, tenant, _, _), picos, is_lost in requests:
        lost[hour, tenant] += picos * is_lost
    stored = Counter[tuple[int, str]]()
    for line in lines:
        stored[line.at // HOUR_MICROS, line.tenant] += line.cost
    assert +stored == +lost
    assert sum(line.requests for line in lines) == sum(is_lost for *_, is_lost in requests)
    assert not any(line.counted for line in lines)
