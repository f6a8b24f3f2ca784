from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.traffic.discovery.slices import targets
from gateway.traffic.discovery.target import DiscoveredEndpoint
from tests.support.kubernetes import endpoint, slice_of

NAME = "vllm.models.svc"


def urls(*slices: Any, port: str | None = None) -> list[str]:
    return sorted(target.url for target in targets(slices, "http", port, NAME))


def test_the_ready_endpoints_of_all_slices_with_their_zones() -> None:
    one = slice_of("a", endpoint("10.0.0.1", zone="eu-1a"), endpoint("10.0.0.2", ready=False))
    two = slice_of("b", endpoint("10.0.1.1"))
    assert targets([one, two], "https", None, NAME) == [
        DiscoveredEndpoint("https://10.0.0.1:8000", 1.0, "eu-1a", NAME),
        DiscoveredEndpoint("https://10.0.1.1:8000", 1.0, None, NAME),
    ]


@pytest.mark.parametrize(
    ("conditions", "used"),
    [
        ({}, True),
        ({"ready": True}, True),
        ({"ready": None}, True),  # unknown counts as ready, by the API's documentation
        ({"ready": False}, False),
        ({"ready": False, "serving": True}, False),
        ({"ready": True, "terminating": True}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
    ],
)
def test_which_conditions_let_an_endpoint_be_used(conditions: dict[str, bool | None], used: bool) -> None:
    one = {"addresses": ["10.0.0.1"], "conditions": conditions}
    assert urls(slice_of("a", one, endpoint("10.0.0.9"))) == [
        *(["http://10.0.0.1:8000"] if used else []), "http://10.0.0.9:8000",
    ]  # fmt: skip


def test_when_all_leave_those_that_still_serve_are_used() -> None:
    leaving = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    gone = endpoint("10.0.0.2", ready=False, serving=False, terminating=True)
    assert urls(slice_of("a", leaving, gone)) == ["http://10.0.0.1:8000"]


def test_a_pod_with_two_addresses_is_one_endpoint() -> None:
    v6 = slice_of("a", endpoint("fd00::1", uid="pod-1"), endpoint("fd00::2", uid="pod-2"), family="IPv6")
    v4 = slice_of("b", endpoint("10.0.0.1", uid="pod-1"))
    assert urls(v6, v4) == ["http://10.0.0.1:8000", "http://[fd00::2]:8000"]


def test_the_port_by_name_by_number_or_the_only_one() -> None:
    several = slice_of("a", endpoint("10.0.0.1"), metrics=9000)
    assert urls(several, port="metrics") == ["http://10.0.0.1:9000"]
    assert urls(several, port="8000") == ["http://10.0.0.1:8000"]
    assert urls(several) == []
    assert urls(several, port="grpc") == []
    assert urls(slice_of("a", endpoint("10.0.0.1"), port=7000)) == ["http://10.0.0.1:7000"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["port", "name", "zone"]), inner),
    max_leaves=8,
)


@given(st.lists(st.fixed_dictionaries({}, optional={"endpoints": junk, "ports": junk, "addressType": junk})))
def test_slices_of_another_shape_name_no_endpoint(slices: list[dict[str, Any]]) -> None:
    assert targets(slices, "http", None, NAME) == []
