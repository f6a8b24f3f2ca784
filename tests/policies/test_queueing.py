"""Order, room and estimates of the queue, against models that are too slow to use."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.queueing import BANDS, BATCH, HIGH, LOW, NORMAL, FairQueue, Ticket

TENANTS = "abc"
TICKETS = st.tuples(
    st.sampled_from(TENANTS), st.integers(HIGH, LOW), st.sampled_from([1.0, 2.0, 3.0]), st.integers(1, 9)
)


def queue(*tickets: Ticket, lower: float = 0.0, **shares: float) -> FairQueue[Ticket]:
    made: FairQueue[Ticket] = FairQueue()
    made.configure(shares, lower)
    for ticket in tickets:
        made.push(ticket)
    return made


def tickets(tenant: str, count: int, band: int = NORMAL, due: float = 30.0, tokens: float = 10.0) -> list[Ticket]:
    return [Ticket(tenant, band, due, tokens) for _ in range(count)]


def drain(waiting: FairQueue[Ticket]) -> list[Ticket]:
    served = []
    while waiting.size:
        served.append(waiting.next())
        waiting.serve(served[-1])
    return served


@given(st.lists(TICKETS, max_size=40))
def test_all_are_served_once_by_band_and_within_a_tenant_by_urgency(
    written: list[tuple[str, int, float, int]],
) -> None:
    made = [Ticket(*fields) for fields in written]
    served = drain(queue(*made, a=2.0))
    assert sorted(map(id, served)) == sorted(map(id, made))
    assert [t.band for t in served] == sorted(t.band for t in made)
    for tenant in TENANTS:
        for band in range(BANDS):
            mine = [t for t in served if (t.tenant, t.band) == (tenant, band)]
            arrived = [t for t in made if (t.tenant, t.band) == (tenant, band)]
            assert mine == sorted(arrived, key=lambda t: t.due)  # stable: tickets due together stay in order of arrival


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TICKETS, st.sampled_from(["push", "push", "leave", "serve", "shed"])), max_size=120))
def test_the_counts_are_right_after_any_actions(written: list[tuple[tuple[str, int, float, int], str]]) -> None:
    waiting = queue(b=3.0, lower=0.1)
    model: list[Ticket] = []
    dice = Random(len(written))
    for fields, action in written:
        if action == "push":
            model.append(Ticket(*fields))
            waiting.push(model[-1])
        elif model and action == "leave":
            waiting.remove(model.pop(dice.randrange(len(model))))
        elif model and action == "serve":
            waiting.serve(ticket := waiting.next())
            model.remove(ticket)
        elif model and (victim := waiting.victim(fields[0], fields[1])) is not None:
            waiting.remove(victim)
            model.remove(victim)
        assert waiting.size == len(model) == len(list(waiting))
        assert waiting.depths() == [sum(t.band == band for t in model) for band in range(BANDS)]
        assert all(ticket in waiting for ticket in model)
        for ticket in model:
            assert waiting.ahead(ticket.tenant, ticket.band) <= sum(t.band <= ticket.band for t in model)


def test_a_flood_delays_another_tenant_by_a_turn_and_not_by_the_flood() -> None:
    waiting = queue(*tickets("flood", 500))
    for _ in range(100):
        waiting.serve(waiting.next())
    (late,) = tickets("late", 1)
    waiting.push(late)
    assert drain(waiting).index(late) <= 1


def test_no_request_of_a_band_is_passed_over_forever() -> None:
    (old,) = tickets("a", 1, due=60.0)
    waiting = queue(old, b=5.0)
    for turn in range(1000):
        waiting.push(Ticket("b", NORMAL, 30.0 + turn, 10.0))
        waiting.push(Ticket("a", NORMAL, 30.0 + turn, 10.0))  # after 30 turns these are due later
        served = waiting.next()
        waiting.serve(served)
        if served is old:
            break
    assert 30 < turn < 300


@pytest.mark.parametrize(("lower", "expected"), [(0.0, 0), (0.1, 10), (0.25, 25)])
def test_a_lower_band_has_its_part_of_the_turns_and_none_without_one(lower: float, expected: int) -> None:
    waiting = queue(*tickets("a", 200, HIGH), *tickets("b", 200, LOW), lower=lower)
    turns = []
    for _ in range(100):
        turns.append(waiting.next())
        waiting.serve(turns[-1])
    low = sum(ticket.band == LOW for ticket in turns)
    assert expected - 1 <= low <= expected
    waiting = queue(*tickets("a", 100, HIGH), *tickets("b", 100), *tickets("b", 100, LOW), lower=lower)
    for _ in range(100):
        waiting.serve(waiting.next())
    _, normal, low, _ = waiting.depths()
    assert abs((100 - normal) - expected) <= 2
    assert abs((100 - low) - expected) <= 2


@pytest.mark.parametrize("lower", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("band", [HIGH, NORMAL, LOW])
def test_batches_have_no_turn_while_another_request_waits(lower: float, band: int) -> None:
    waiting = queue(*tickets("a", 20, BATCH), *tickets("b", 50, band), lower=lower)
    for _ in range(50):
        assert waiting.next().band == band
        waiting.serve(waiting.next())
    assert waiting.next().band == BATCH


def test_an_empty_band_does_not_accumulate_turns() -> None:
    waiting = queue(*tickets("a", 100, HIGH), lower=0.25)
    (leaves,) = tickets("b", 1, LOW)
    waiting.push(leaves)
    for _ in range(3):
        waiting.serve(waiting.next())
    waiting.remove(leaves)
    for _ in range(50):
        waiting.serve(waiting.next())
    for ticket in tickets("b", 10, LOW):
        waiting.push(ticket)
    for _ in range(3):
        waiting.serve(waiting.next())
    assert waiting.next().band == HIGH
    waiting.serve(waiting.next())
    assert waiting.next().band == LOW


def test_a_lower_band_that_has_had_its_turn_earns_the_next_one() -> None:
    waiting = queue(*tickets("a", 10, HIGH), *tickets("b", 10, LOW), lower=0.25)
    for _ in range(4):
        waiting.serve(waiting.next())
    assert waiting.next().band == LOW
    waiting.serve(waiting.next())
    assert waiting.next().band == HIGH


def test_room_is_made_by_the_tenant_with_most_requests_in_the_lowest_band() -> None:
    flood, few, high = tickets("flood", 5, LOW), tickets("few", 2, LOW), tickets("vip", 9, HIGH)
    waiting = queue(*high, *flood, *few)
    assert waiting.victim("anyone", HIGH) is flood[-1]
    assert waiting.victim("anyone", LOW) is flood[-1]
    assert waiting.victim("flood", LOW) is None
    assert queue(*high).victim("anyone", NORMAL) is None
    assert queue(*high).victim("anyone", HIGH) is high[-1]
    assert queue(*flood, flood=5.0).victim("anyone", LOW) is None  # five for a share of five are one each


def test_a_place_does_not_go_back_and_forth_between_two() -> None:
    waiting = queue(*tickets("a", 10))
    for _ in range(50):
        for tenant in "ab":
            if (victim := waiting.victim(tenant, NORMAL)) is not None:
                waiting.remove(victim)
                waiting.push(*tickets(tenant, 1))
    assert sorted(t.tenant for t in waiting) == ["a"] * 5 + ["b"] * 5


def test_the_count_ahead_depends_on_band_and_share() -> None:
    waiting = queue(*tickets("flood", 100), *tickets("vip", 7, HIGH), light=2.0)
    assert waiting.ahead("vip", HIGH) == 7
    assert waiting.ahead("flood", NORMAL) == 107
    assert waiting.ahead("light", NORMAL) == 7.5
    assert waiting.ahead("light", LOW) == 107
    assert queue().ahead("light", LOW) == 0


def test_removed_tickets_are_freed() -> None:
    waiting = queue()
    stays = Ticket("a", NORMAL, 0.0, 1.0)
    waiting.push(stays)
    for _ in range(1000):
        (gone,) = tickets("a", 1)
        waiting.push(gone)
        waiting.remove(gone)
    lane = waiting._bands[NORMAL].lanes["a"]
    assert len(lane._urgency) < 40
    assert waiting.next() is stays
    with pytest.raises(KeyError):
        waiting.remove(gone)


def test_an_empty_queue_has_no_next() -> None:
    with pytest.raises(ValueError, match="no request waits"):
        queue().next()


def test_counters_of_tenants_that_are_gone_are_forgotten_when_they_wait_no_more() -> None:
    waiting = queue(*tickets("a", 2), a=1.0)
    waiting.serve(waiting.next())
    counter = waiting._bands[NORMAL].counter
    waiting.configure({"b": 1.0}, 0.0)
    assert counter.level("a") == 10
    drain(waiting)
    waiting.configure({"b": 1.0}, 0.0)
    assert counter.level("a") == 0
