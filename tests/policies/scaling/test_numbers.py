from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.numbers import resized

numbers = st.sets(st.integers(0, 40), max_size=20)


@given(numbers, numbers, st.integers(0, 20))
def test_a_change_adds_or_removes_and_prefers_replicas_that_serve(
    running: set[int], ready: set[int], replicas: int
) -> None:
    after = set(resized(running, ready, replicas))
    assert len(after) == replicas
    added, removed = after - running, running - after
    assert not added or not removed
    if added:
        assert max(added) < replicas or set(range(max(added))) <= running | added, "the lowest free numbers"
    if removed & ready:
        assert after <= ready, "a replica that serves was removed before one that does not"


def test_the_highest_goes_first() -> None:
    assert resized((0, 1, 2, 3), {0, 1, 2, 3}, 2) == (0, 1)
    assert resized((0, 1, 2, 3), {1, 3}, 2) == (1, 3)
    assert resized((1, 3), {1, 3}, 4) == (0, 1, 2, 3)
