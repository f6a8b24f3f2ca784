"""Public addresses, whatever notation or protocol carries them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.addresses import is_public, may_be_public

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255",
]  # fmt: skip
SIX = ["::", "::1", "fe80::1%eth0", "fd00::1", "fec0::1", "ff02::1", "64:ff9b:1::1"]


@pytest.mark.parametrize("address", [*PRIVATE, *SIX])
def test_addresses_of_no_server_of_the_internet(address: str) -> None:
    assert not is_public(address)
    assert not may_be_public(address)


@given(st.ip_addresses(v=4) | st.sampled_from(PRIVATE).map(ipaddress.ip_address))
def test_an_address_inside_of_another_counts_for_itself(v4: ipaddress.IPv4Address) -> None:
    public = is_public(str(v4))
    assert public <= v4.is_global
    assert is_public(f"::ffff:{v4}") == is_public(f"64:ff9b::{v4}") == public
    assert is_public(str(ipaddress.IPv6Address((0x2002 << 112) | (int(v4) << 80) | 1))) == public
    assert not is_public(f"::{v4}")


@given(st.sampled_from(PRIVATE), st.data())
def test_digits_and_dots_of_other_scripts_are_those_of_ascii(address: str, data: st.DataObject) -> None:
    zero = data.draw(st.sampled_from("\uff10\U0001d7ce"))
    dot = data.draw(st.sampled_from(".\u3002\uff0e\uff61"))
    text = "".join(chr(ord(zero) + int(each)) if each.isdigit() else dot for each in address)
    assert not may_be_public(text)
    assert not may_be_public(f"{text}.")


@pytest.mark.parametrize(("host", "public"), [("8.8.8.8", True), ("2606:4700::1111", True), ("hooks.example.com", True),
                                              ("localhost", False), ("a.localhost.", False)])  # fmt: skip
def test_names_may_be_public(host: str, public: bool) -> None:
    assert may_be_public(host) == public
