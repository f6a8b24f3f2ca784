"""Load that servers report, read from a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from adapters.call import Call
from config.schema.config import SignalsConfig
from gateway.admin.api.pools import describe_endpoint
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.signals import metrics_url
from gateway.traffic.pool import Pool
from tests.adapters.http1.raw import until
from tests.support.gateways import chat, config
from tests.support.pools import FOREVER


class Metrics:
    """A page of metrics that a test writes."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 200
        self.received = 0
        self.authorization: str | None = None
        self.silent = False

    async def answer(self, request: web.Request) -> web.Response:
        self.received += 1
        self.authorization = request.headers.get("authorization")
        if self.silent:
            await asyncio.sleep(60)
        return web.Response(text=self.text, status=self.status)


@asynccontextmanager
async def metrics() -> AsyncIterator[tuple[Metrics, str]]:
    page = Metrics()
    app = web.Application()
    app.router.add_get("/metrics", page.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield page, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def use(fleet: Fleet, *urls: str, **balance: Any) -> Pool:
    balance = balance or {"by": "load", "signals": {"interval": "20ms", "timeout": "200ms"}}
    pool = {"name": "main", "endpoints": urls, "probe": None, "balance": balance, "key": "k"}
    return fleet.commit(fleet.prepare(config(pools=[pool])))["main"]


async def test_reports_are_read_again_and_again_with_the_pool_s_key(fleet: Fleet) -> None:
    async with metrics() as (page, url):
        page.text = "vllm:num_requests_running 7.0\nvllm:num_requests_waiting 2.0\n"
        use(fleet, url)
        (member,) = fleet
        await until(lambda: member.endpoint.signal.seen)
        assert member.endpoint.signal.load(0, 1.0) == 11.0
        assert page.authorization == "Bearer k"
        page.text = 'vllm:num_requests_running 1.0\nvllm:lora_requests_info{running_lora_adapters="sql"} 5\n'
        await until(lambda: member.endpoint.signal.load(0, 1.0) == 1.0)
        assert member.endpoint.signal.adapters == {"sql"}
        signals = describe_endpoint(member, asyncio.get_running_loop().time())["signals"]
        assert (signals["running"], signals["adapters"], signals["error"]) == (1.0, ["sql"], "")


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("", 500, "status 500"),
        ("up 1\n", 200, "none of the expected metrics"),
        ("vllm:num_requests_running many\n", 200, ""),
        ("vllm:num_requests_running NaN\n", 200, "not a number"),
        ("x" * (5 * 1024**2), 200, "larger than"),
    ],
)
async def test_an_unreadable_page_is_reported_and_the_last_report_ages(
    fleet: Fleet, text: str, status: int, error: str
) -> None:
    async with metrics() as (page, url):
        page.text = "vllm:num_requests_running 7.0\n"
        use(fleet, url)
        (member,) = fleet
        scraper, signal = member.scraper, member.endpoint.signal
        assert scraper is not None
        await until(lambda: signal.seen)
        page.text, page.status = text, status
        await until(lambda: bool(scraper.error))
        assert error in scraper.error
        now = asyncio.get_running_loop().time()
        await until(lambda: signal.trust(asyncio.get_running_loop().time()) < 0.2)
        assert signal.load(0, 1.0) == 7.0
        assert signal.age(now) is not None
        page.text, page.status = "vllm:num_requests_running 3.0\n", 200
        await until(lambda: not scraper.error)


async def test_a_server_that_does_not_answer_is_given_up_in_time(fleet: Fleet) -> None:
    async with metrics() as (page, url):
        page.silent = True
        use(fleet, url)
        (member,) = fleet
        scraper = member.scraper
        assert scraper is not None
        await until(lambda: bool(scraper.error))
        assert not member.endpoint.signal.seen


async def test_only_pools_that_go_by_load_are_read_and_a_reload_changes_that(fleet: Fleet) -> None:
    async with metrics() as (page, url):
        use(fleet, url, by="least_request")
        (member,) = fleet
        assert member.scraper is None
        use(fleet, url, by="load", signals={"interval": "10ms"})
        assert next(iter(fleet)) is member
        await until(lambda: page.received > 2)
        use(fleet, url, by="peak_ewma")
        assert member.scraper is None
        await asyncio.sleep(0.05)
        reads = page.received
        await asyncio.sleep(0.05)
        assert page.received == reads


async def test_requests_are_routed_by_the_reported_load(fleet: Fleet) -> None:
    async with metrics() as (busy, one), metrics() as (idle, two):
        busy.text = 'sglang:num_running_reqs{model_name="m"} 30\nsglang:num_queue_reqs{model_name="m"} 9\n'
        idle.text = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"
        made = use(fleet, one, two, by="load", signals={"interval": "20ms", "server": "sglang"})
        await until(lambda: all(member.endpoint.signal.seen for member in fleet))
        now = asyncio.get_running_loop().time()
        leases = [made.lease(chat(), Call(FOREVER), now) for _ in range(20)]
        assert {endpoint.address for endpoint in leases if endpoint is not None} == {two}


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        ("http://10.0.0.5:8000/v1", None, "http://10.0.0.5:8000/metrics"),
        ("http://10.0.0.5:8000", 8002, "http://10.0.0.5:8002/metrics"),
        ("https://models.example.org/base", None, "https://models.example.org/metrics"),
        ("http://[::1]:8000", 8002, "http://[::1]:8002/metrics"),
        ("unix:/run/llm.sock", None, "http://localhost/metrics"),
    ],
)
def test_where_the_metrics_of_an_address_are(address: str, port: int | None, expected: str) -> None:
    assert metrics_url(address, SignalsConfig(port=port)) == expected
