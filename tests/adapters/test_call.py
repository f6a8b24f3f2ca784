"""A call's trace: seconds count once however many attempts wait, and all attempts of a call share it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.call import Call, CallTrace
from adapters.types import Deadline

FOREVER = Deadline(1e9, 1e9, 1e9)
WAITS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 10)).map(
        lambda wait: (wait[0], wait[1], sum(wait[1:]))
    ),
    max_size=8,
)


def traced(waits: list[tuple[bool, int, int]]) -> CallTrace:
    """The trace of waits, each at an upstream or in a queue, from a time to a later one."""
    trace = CallTrace()
    changes = [(start, trace.sent if upstream else trace.queued) for upstream, start, _ in waits]
    changes += [(end, trace.returned if upstream else trace.dequeued) for upstream, _, end in waits]
    for now, change in sorted(changes, key=lambda change: change[0]):
        change(now)
    return trace


@given(WAITS)
def test_seconds_count_once_and_an_upstream_s_first(waits: list[tuple[bool, int, int]]) -> None:
    trace = traced(waits)
    seconds = [{upstream for upstream, start, end in waits if start <= at < end} for at in range(40)]
    assert trace.upstream_seconds == sum(True in waiting for waiting in seconds)
    assert trace.queue_seconds == sum(waiting == {False} for waiting in seconds)


def test_seconds_end_with_the_first_chunk() -> None:
    trace = traced([(True, 1, 3)])
    trace.first_chunk = 3.0
    trace.sent(5.0)
    trace.queued(6.0)
    trace.dequeued(7.0)
    trace.returned(9.0)
    assert (trace.upstream_seconds, trace.queue_seconds) == (2.0, 0.0)


def test_an_attempt_shares_the_trace_and_the_tried_endpoints() -> None:
    call = Call(FOREVER, "id", "acme", "key", {"a": "b"}, "salt", 2.0, "low", "p/1")
    call.sent("p/0", 1.0)
    other = call.attempt()
    other.sent("p/1", 2.0)
    assert call.tried == other.tried == call.trace.attempts == ["p/0", "p/1"]
    assert (call.sent_at, other.sent_at, call.attempt().sent_at) == (1.0, 2.0, None)


def test_a_part_shares_the_trace_and_has_tried_nothing() -> None:
    call = Call(FOREVER)
    call.sent("p/0", 1.0)
    part = call.part()
    part.sent("p/1", 2.0)
    assert (call.tried, part.tried) == (["p/0", "p/1"], ["p/1"])
    assert call.trace.attempts == ["p/0", "p/1"]


@pytest.mark.parametrize("derive", [Call.attempt, Call.part])
def test_all_else_is_the_call_s_own(derive: object) -> None:
    assert callable(derive)
    call = Call(FOREVER, "id", "acme", "key", {"a": "b"}, "salt", 2.0, "low", "p/1")
    call.full_pools = []
    derived = derive(call)
    own = set(Call.__slots__) - {"sent_at", "tried"}
    assert {name: getattr(derived, name) for name in own} == {name: getattr(call, name) for name in own}
