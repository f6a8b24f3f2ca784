"""Refusals by tenant: the tenants that an endpoint's refusal holds off, and when it counts against the endpoint."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.breaker import Breaker
from policies.refusals import MOST, WITNESS, Refusals

LIKE = Breaker(3, 10.0)


class Event(NamedTuple):
    tenant: str
    kind: str
    after: float
    retry_after: float | None


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from("abc"),
        st.sampled_from(["own", "unknown", "unknown", "answered", "abandoned", "begin"]),
        st.floats(0.0, 20.0),
        st.none() | st.floats(0.0, 60.0),
    ),
    max_size=30,
)


@given(EVENTS)
def test_refusals_of_one_tenant_count_for_that_tenant_only(events: list[Event]) -> None:
    """Against a model: only a refused tenant is held off, and refusals of at least two tenants blame the endpoint."""
    refusals, now = Refusals(), 0.0
    refused: dict[str, tuple[float, str]] = {}
    for event in events:
        now += event.after
        if event.kind in ("own", "unknown"):
            others = [at for name, (at, kind) in refused.items() if name != event.tenant and kind == "unknown"]
            tenant_only = event.kind == "own"
            blamed = refusals.refused(event.tenant, event.retry_after, now, LIKE, tenant_only=tenant_only)
            assert blamed == (not tenant_only and any(now - at < WITNESS for at in others))
            refused[event.tenant] = now, event.kind
        elif event.kind == "answered":
            refusals.answered(event.tenant)
            refused.pop(event.tenant, None)
        elif event.kind == "abandoned":
            refusals.abandoned(event.tenant, now)
        elif refusals.allows(event.tenant, now):
            refusals.begin(event.tenant, now)
        for tenant in "abc":
            if tenant not in refused:
                assert refusals.allows(tenant, now)
                assert refusals.rests(tenant, now) == refusals.retry_after(tenant, now) == 0.0
            wait = refusals.retry_after(tenant, now)
            assert (wait == 0.0) == refusals.allows(tenant, now)
            assert wait == 0.0 or 0.0 < refusals.next_change(now) <= wait


def test_a_tenant_is_held_off_for_its_retry_after() -> None:
    refusals = Refusals()
    refusals.refused("a", 5.0, 0.0, LIKE, tenant_only=False)
    assert [refusals.allows("a", now) for now in (0.0, 4.9, 5.0)] == [False, False, True]
    assert refusals.rests("a", 1.0) == 4.0


def test_refusals_without_a_time_open_as_a_breaker_does() -> None:
    refusals = Refusals()
    for now in range(3):
        assert refusals.allows("a", now)
        refusals.refused("a", None, now, LIKE, tenant_only=True)
    assert not refusals.allows("a", 3.0)
    assert refusals.allows("b", 3.0)
    assert refusals.allows("a", 12.0)


@pytest.mark.parametrize("tenant_only", [True, False])
def test_the_tenants_that_are_remembered_are_bounded(tenant_only: bool) -> None:
    refusals = Refusals()
    for number in range(MOST + 10):
        refusals.refused(str(number), 10.0, 0.0, LIKE, tenant_only=tenant_only)
    assert len(refusals.tenants) == MOST
    assert refusals.allows("0", 0.0)
