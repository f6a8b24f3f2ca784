"""The choice of the servers that are awake."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.sleeping import SleepFacts, chosen

SERVERS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=8).map(
    lambda flags: [SleepFacts(str(at), reachable=r, failing=f, asleep=a) for at, (r, f, a) in enumerate(flags)]
)


@given(SERVERS, st.integers(0, 9), st.integers(0, 9))
def test_a_smaller_choice_is_a_part_of_a_larger_one(servers: list[SleepFacts], few: int, more: int) -> None:
    smaller, larger = chosen(servers, min(few, more)), chosen(servers, max(few, more))
    assert larger[: len(smaller)] == smaller
    assert len(larger) == min(len(servers), max(few, more)) == len(set(larger))


@given(SERVERS, st.integers(0, 9))
def test_no_server_is_woken_while_another_that_works_is_awake(servers: list[SleepFacts], replicas: int) -> None:
    selected = set(chosen(servers, replicas))
    works = [server for server in servers if server.reachable and not server.failing]
    spare = [server for server in works if not server.asleep and server.address not in selected]
    assert not spare or not any(server.asleep for server in works if server.address in selected)
    assert not (spare and any(server.address in selected for server in servers if server not in works))


@given(SERVERS, st.integers(0, 9))
def test_the_choice_stays_when_it_is_applied(servers: list[SleepFacts], replicas: int) -> None:
    selected = chosen(servers, replicas)
    applied = [replace(server, asleep=server.address not in selected) for server in servers]
    assert set(chosen(applied, replicas)) == set(selected)
