"""Refusals by model and tenant: what an endpoint's refusal holds off, and when it counts against the endpoint."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.breaker import Breaker
from policies.refusals import MOST, WITNESS, Refusals

LIKE = Breaker(3, 10.0)


class Event(NamedTuple):
    model: str
    tenant: str
    kind: str
    after: float
    retry_after: float | None


KINDS = ["tenant", "unknown", "unknown", "server", "answered", "abandoned", "begin"]
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from("xyz"),
        st.sampled_from("abc"),
        st.sampled_from(KINDS),
        st.floats(0.0, 20.0),
        st.none() | st.floats(0.0, 60.0),
    ),
    max_size=30,
)


@given(EVENTS, st.booleans())
def test_a_refusal_widens_only_with_evidence(events: list[Event], several: bool) -> None:
    """Against a model: which requests are untouched, and which refusals blame the endpoint."""
    refusals, now = Refusals(), 0.0
    refused: dict[tuple[str, str], tuple[float, str]] = {}
    whole: dict[str, float] = {}
    for event in events:
        now += event.after
        model, tenant = event.model if several else "", event.tenant
        if event.kind in ("tenant", "unknown", "server"):
            lately = [subject for subject, (at, kind) in refused.items() if kind == "unknown" and now - at < WITNESS]
            confirmed = any(one == model and name != tenant for one, name in lately)
            for_all = event.kind == "server" or (event.kind == "unknown" and confirmed)
            others = any(one != model and now - at < WITNESS for one, at in whole.items())
            blamed = refusals.refused(model, tenant, event.retry_after, now, LIKE, event.kind)
            assert blamed == (for_all and (others or not several))
            if event.kind != "server":
                refused[model, tenant] = now, event.kind
            if for_all and several:
                whole[model] = now
        elif event.kind == "answered":
            refusals.answered(model, tenant, now)
            refused.pop((model, tenant), None)
            if (model, None) not in refusals.held:
                whole.pop(model, None)
        elif event.kind == "abandoned":
            refusals.abandoned(model, tenant, now)
        elif refusals.allows(model, tenant, now):
            refusals.begin(model, tenant, now)
        for one in "xyz" if several else [""]:
            for name in "abc":
                if (one, name) not in refused and one not in whole:
                    assert refusals.allows(one, name, now)
                    assert refusals.rests(one, name, now) == refusals.retry_after(one, name, now) == 0.0
                wait = refusals.retry_after(one, name, now)
                assert (wait == 0.0) == refusals.allows(one, name, now)
                assert wait == 0.0 or 0.0 < refusals.next_change(now) <= wait
    refusals.answered("-", "-", now + 1000.0)
    assert not refusals.held, "entries expire"


def test_a_tenant_is_held_off_for_its_retry_after() -> None:
    refusals = Refusals()
    refusals.refused("", "a", 5.0, 0.0, LIKE, "unknown")
    assert [refusals.allows("", "a", now) for now in (0.0, 4.9, 5.0)] == [False, False, True]
    assert refusals.rests("", "a", 1.0) == 4.0


def test_refusals_without_a_time_open_as_a_breaker_does() -> None:
    refusals = Refusals()
    for now in range(3):
        assert refusals.allows("", "a", now)
        refusals.refused("", "a", None, now, LIKE, "tenant")
    assert not refusals.allows("", "a", 3.0)
    assert refusals.allows("", "b", 3.0)
    assert refusals.allows("", "a", 12.0)


@pytest.mark.parametrize("scope", ["tenant", "unknown", "server"])
def test_the_refusals_that_are_remembered_are_bounded(scope: str) -> None:
    refusals = Refusals()
    for number in range(MOST + 10):
        refusals.refused(str(number), str(number), 10.0, 0.0, LIKE, scope)
    assert len(refusals.held) == MOST
    assert refusals.allows("0", "0", 0.0)
