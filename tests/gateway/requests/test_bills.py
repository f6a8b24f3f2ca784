"""Invoices are the sum of the stored requests, to the pico, over any schedule of crashes, reloads and workers."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import Config
from config.schema.money import format_amount
from gateway.host_writers import HostWriters
from gateway.requests.live import LiveRequests
from gateway.requests.search import LabelTest, RequestQuery
from gateway.usage.export import invoice, month_of
from gateway.usage.live import LiveUsage
from gateway.usage.report import UsageQuery
from tests.gateway.requests.test_spool import NOVEMBER, crash, record
from tests.support.gateways import PEPPER, config

MONTH = "2026-11"


class WorkerOfHost:
    """The counter and the sink of one process, which receive each ended request."""

    def __init__(self, settings: Config) -> None:
        self.usage, self.requests = LiveUsage(), LiveRequests()
        self.waiting: Counter[str] = Counter()
        """Picos by tenant of requests that are not in the spool yet."""
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
        self.waiting[tenant] += picos

    async def flush(self) -> None:
        assert self.requests.sink is not None
        await self.requests.sink._flush()
        self.waiting.clear()

    def crash(self) -> None:
        assert self.requests.sink is not None
        self.usage.close()  # as the kernel closes its file
        crash(self.requests.sink)

    async def aclose(self) -> None:
        self.usage.close()
        await self.requests.aclose()


place = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("end"), place, st.sampled_from(["acme", "beta"]), st.integers(0, 10**15)),
        st.tuples(st.just("flush"), place),
        st.tuples(st.just("crash"), place),
        st.tuples(st.just("reload"), place, st.integers(0, 1)),
        st.tuples(st.just("write")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("later"), st.integers(1, 30 * 3600)),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(steps)
async def test_invoices_are_the_sum_of_the_records(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Only what a crashed process had not spooled yet is in the invoice alone."""
    folder: Path = tmp_path_factory.mktemp("bills")
    state = {"database": f"sqlite:///{folder}/state.db"}
    kinds = [config(state=state, usage={}, requests={"retention": "3650d", "flush": flush}) for flush in ("1s", "2s")]
    writers = HostWriters(lambda: kinds[0], lambda: PEPPER)
    workers = [WorkerOfHost(kinds[0]) for _ in range(3)]
    now = float(NOVEMBER)
    ended: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for number, step in enumerate(steps):
        match step:
            case "end", at, tenant, picos:
                workers[at].end(f"r{number}", tenant, picos, now)
                ended[tenant] += picos
            case "flush", at:
                await workers[at].flush()
            case "crash", at:
                workers[at].crash()
                lost += workers[at].waiting
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
        await worker.aclose()
    await asyncio.gather(writers.usage.write(), writers.requests.write())
    bills, records = await writers.usage.store(), await writers.requests.store()
    for tenant in ("acme", "beta"):
        lines = bills.report(UsageQuery(*month_of(MONTH), ("model",), None, tenant))
        billed = invoice(tenant, MONTH, lines)["totals"]
        expected = [{"currency": "usd", "amount": format_amount(ended[tenant])}]
        assert billed == (expected if lines else [])
        query = RequestQuery(0, 2**60, (LabelTest("tenant", tenant),), limit=1000)
        stored = sum(row["picos"] for row in records.search(query))
        assert stored == sum(total["picos"] for total in records.totals(query))
        assert stored + lost[tenant] == ended[tenant]
    await writers.aclose()
