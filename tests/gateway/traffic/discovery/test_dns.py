"""DNS over a real socket."""

import asyncio
from typing import Any

import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery import dns as module
from gateway.traffic.discovery.dns import held, relative
from gateway.traffic.discovery.target import DiscoveredEndpoint, DiscoveryError
from tests.gateway.traffic.discovery.following import following, urls
from tests.support.nameservers import Nameserver, nameserver
from tests.support.waiting import until


def config(server: Nameserver, **fields: Any) -> DiscoverConfig:
    source = {} if "srv" in fields else {"dns": "models.test:8000"}
    return DiscoverConfig(nameserver=server.address, ttl_min="20ms", **source, **fields)


async def test_every_address_is_an_endpoint_and_changes_are_followed() -> None:
    async with nameserver() as server:
        server.records = {("models.test", "A"): ["10.0.0.1", "10.0.0.2"], ("models.test", "AAAA"): ["fd00::1"]}
        async with following(config(server, scheme="https")) as endpoints:
            await until(lambda: endpoints.targets)
            assert urls(endpoints) == ["https://10.0.0.1:8000", "https://10.0.0.2:8000", "https://[fd00::1]:8000"]
            assert {target.server_name for target in endpoints.targets} == {"models.test"}
            server.records = {("models.test", "A"): ["10.0.0.2", "10.0.0.3"]}
            await until(lambda: urls(endpoints) == ["https://10.0.0.2:8000", "https://10.0.0.3:8000"])


async def test_the_ttl_is_honoured_within_bounds() -> None:
    async with nameserver() as server:
        server.records = {("models.test", "A"): ["10.0.0.1"]}
        server.ttl = 3600
        async with following(config(server)) as endpoints:
            await until(lambda: endpoints.targets)
            await asyncio.sleep(0.2)
            assert server.received["models.test", "A"] == 1
        async with following(config(server, ttl_max="50ms")):
            await until(lambda: server.received["models.test", "A"] > 3)


@given(st.floats(0, 1e9), st.booleans())
def test_records_are_held_within_the_configured_bounds(ttl: float, none: bool) -> None:
    bounds = DiscoverConfig(dns="a:1", ttl_min="5s", ttl_max="5m")
    assert 5 <= held(float("inf") if none else ttl, bounds) <= 300
    if 5 <= ttl <= 300 and not none:
        assert held(ttl, bounds) == ttl


@pytest.mark.parametrize("fault", ["nothing", "nxdomain", "servfail"])
async def test_a_server_that_answers_nothing_of_use_leaves_the_last_endpoints(fault: str) -> None:
    async with nameserver() as server:
        server.records = {("models.test", "A"): ["10.0.0.1"]}
        async with following(config(server)) as endpoints:
            await until(lambda: endpoints.targets)
            if fault == "servfail":
                server.rcode = dns.rcode.SERVFAIL
            else:
                server.records = {("models.test", "TXT"): []} if fault == "nothing" else {}
            await until(lambda: endpoints.error)
            assert urls(endpoints) == ["http://10.0.0.1:8000"]
            server.rcode, server.records = dns.rcode.NOERROR, {("models.test", "A"): ["10.0.0.2"]}
            await until(lambda: urls(endpoints) == ["http://10.0.0.2:8000"])
            assert endpoints.error == ""


async def test_a_server_that_does_not_answer_leaves_the_last_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.2)
    async with nameserver() as server:
        server.records = {("models.test", "A"): ["10.0.0.1"]}
        async with following(config(server)) as endpoints:
            await until(lambda: endpoints.targets)
            server.silent = {"A", "AAAA"}
            await until(lambda: endpoints.error)
            assert endpoints.error == "models.test A is not answered within 0.2 s"  # the same each time: logged once
            assert urls(endpoints) == ["http://10.0.0.1:8000"]


async def test_a_family_that_is_never_answered_does_not_hide_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.2)
    async with nameserver() as server:
        server.records = {("models.test", "A"): ["10.0.0.1"], ("models.test", "AAAA"): ["fd00::1"]}
        async with following(config(server)) as endpoints:
            await until(lambda: len(endpoints.targets) == 2)
            server.silent = {"AAAA"}
            server.records["models.test", "A"] = ["10.0.0.2"]
            await until(lambda: "http://10.0.0.2:8000" in urls(endpoints))
            assert urls(endpoints) == ["http://10.0.0.2:8000", "http://[fd00::1]:8000"]
        async with following(config(server)) as endpoints:
            await until(lambda: endpoints.targets)
            server.records["models.test", "A"] = ["10.0.0.3"]
            await until(lambda: urls(endpoints) == ["http://10.0.0.3:8000"])  # and no record is cached without end


async def test_service_records_give_ports_and_weights_of_the_first_priority() -> None:
    async with nameserver() as server:
        server.records = {
            ("_http._tcp.models.test", "SRV"): [
                "10 30 8000 one.test.",
                "10 10 8001 two.test.",
                "20 10 8002 spare.test.",
            ],
            ("one.test", "A"): ["10.0.0.1", "10.0.0.2"],
            ("two.test", "A"): ["10.0.0.3"],
            ("spare.test", "A"): ["10.0.0.4"],
        }
        async with following(config(server, srv="_http._tcp.models.test")) as endpoints:
            await until(lambda: endpoints.targets)
            assert endpoints.targets == (
                DiscoveredEndpoint("http://10.0.0.1:8000", 0.75, None, "one.test"),
                DiscoveredEndpoint("http://10.0.0.2:8000", 0.75, None, "one.test"),
                DiscoveredEndpoint("http://10.0.0.3:8001", 0.5, None, "two.test"),
            )
            server.records["_http._tcp.models.test", "SRV"] = ["20 10 8002 spare.test."]
            await until(lambda: urls(endpoints) == ["http://10.0.0.4:8002"])
            server.records["_http._tcp.models.test", "SRV"] = ["0 0 0 ."]  # RFC 2782: decidedly not available here
            await until(lambda: endpoints.error)
            assert urls(endpoints) == ["http://10.0.0.4:8002"]


@given(st.lists(st.integers(0, 65535), max_size=20))
def test_weights_average_one_and_none_is_nothing(weights: list[int]) -> None:
    scaled = relative(weights)
    assert len(scaled) == len(weights)
    assert all(weight > 0 for weight in scaled)
    if weights:
        assert sum(scaled) / len(scaled) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [("10.0.0.2", "10.0.0.2", 53), ("10.0.0.2:8600", "10.0.0.2", 8600), ("[fd00::2]:53", "fd00::2", 53)],
)
def test_the_address_of_the_nameserver(written: str, host: str, port: int) -> None:
    resolver = module._resolver(written)
    assert (resolver.nameservers, resolver.port) == ([host], port)
    with pytest.raises(DiscoveryError, match="nameserver"):
        module._resolver("10.0.0.300")
