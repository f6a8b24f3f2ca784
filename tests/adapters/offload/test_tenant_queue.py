"""Tenants take turns, for any order and any length of their jobs."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from adapters.offload.tenant_queue import TenantQueue

ARRIVALS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd"), st.integers(1, 5), st.booleans()))
"""Jobs: seconds after the one before, the tenant, seconds of work, and whether its client leaves while it waits."""


def served(arrivals: list[tuple[int, str, int, bool]]) -> Iterator[tuple[str, int, list[str]]]:
    """One worker on a clock of its own: each job with its place among those of its tenant, and the turns before it."""
    waiting, left = TenantQueue[int](), list(enumerate(arrivals))
    now = free = 0
    began: dict[int, tuple[int, int]] = {}
    turns: list[str] = []
    while left or waiting:
        if left and (not waiting or now + left[0][1][0] <= free):
            number, (gap, tenant, _, leaves) = left.pop(0)
            now += gap
            began[number] = (waiting.count(tenant) + 1, len(turns))
            waiting.put(tenant, number)
            if leaves:
                assert waiting.remove(tenant, number)
                assert not waiting.remove(tenant, number)
            continue
        number = waiting.take()
        free = max(free, now) + arrivals[number][2]
        tenant = arrivals[number][1]
        place, since = began[number]
        yield tenant, place, turns[since:]
        turns.append(tenant)


@given(ARRIVALS)
def test_no_tenant_waits_for_more_turns_of_another_than_its_own(arrivals: list[tuple[int, str, int, bool]]) -> None:
    done: Counter[str] = Counter()
    for tenant, place, turns in served(arrivals):
        done[tenant] += 1
        before = Counter(turns)
        assert before.pop(tenant, 0) == place - 1
        assert all(times <= place for times in before.values()), (tenant, place, before)
    assert done == Counter(tenant for _, tenant, _, leaves in arrivals if not leaves)


@given(st.lists(st.sampled_from("abc")))
def test_the_jobs_of_a_tenant_keep_their_order(tenants: list[str]) -> None:
    waiting, numbers = TenantQueue[int](), count()
    for tenant in tenants:
        waiting.put(tenant, next(numbers))
    taken = defaultdict(list)
    while waiting:
        number = waiting.take()
        taken[tenants[number]].append(number)
    assert all(those == sorted(those) for those in taken.values())
    assert sum(map(len, taken.values())) == len(tenants)
