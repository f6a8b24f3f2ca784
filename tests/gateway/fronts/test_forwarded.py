"""The client's address behind proxies: what a client invents never counts."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.fake import FakeAdapter, Script
from config.schema.listen import HttpConfig
from gateway.fronts.forwarded import client_address
from tests.support.chats import HELLO
from tests.support.doors import CHATS, REQUESTS, door

TRUSTED = HttpConfig.model_validate({"trusted_proxies": ["10.0.0.0/8", "127.0.0.1", "fd00::/8"]}).trusted_proxies
NETWORKS = {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]}


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.9", "192.0.2.7", "192.0.2.9"),
        ("10.0.0.1", "1.1.1.1, 192.0.2.7, 10.0.0.2", "192.0.2.7"),
        ("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
        ("fd00::1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("::ffff:10.0.0.1", "::ffff:192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7, nonsense", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7, nonsense, 10.0.0.2", "10.0.0.2"),
        ("unix", "192.0.2.7", "unix"),
    ],
)
def test_the_last_address_that_no_proxy_has(peer: str, forwarded: str | None, client: str) -> None:
    assert client_address(peer, forwarded, TRUSTED) == client


@given(st.text(max_size=80), st.ip_addresses(v=4).filter(lambda each: not each.is_private and not each.is_loopback))
def test_nothing_that_a_client_writes_hides_its_address(invented: str, real: ipaddress.IPv4Address) -> None:
    assert client_address("10.0.0.1", f"{invented},{real}", TRUSTED) == str(real)
    assert client_address(str(real), invented, TRUSTED) == str(real)


@pytest.mark.parametrize("network", ["10.0.0.1/8", "10.0.0.0/33", "proxy", "", 7])
def test_a_network_that_is_none_is_refused(network: Any) -> None:
    with pytest.raises(ValidationError, match=r"network|address"):
        HttpConfig.model_validate({"trusted_proxies": [network]})


@pytest.mark.parametrize(("http", "client"), [({}, "127.0.0.1"), (NETWORKS, "192.0.2.7")])
async def test_the_access_log_has_it(http: dict[str, Any], client: str) -> None:
    async with door(FakeAdapter(Script(chunks=HELLO)), http=http) as d:
        headers = {**d.keyed, "x-forwarded-for": "1.1.1.1, 192.0.2.7, 10.0.0.2"}
        async with d.http.post(f"{d.url}{CHATS}", json=REQUESTS[CHATS], headers=headers) as response:
            assert response.status == 200
        assert d.rig.log.lines[-1].client == client
