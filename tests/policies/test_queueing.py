"""Order, fair shares, room and estimates of the queue, against models that are too slow to use."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.queueing import (
    BANDS,
    BATCH,
    ENOUGH,
    HIGH,
    LOW,
    NORMAL,
    DrainRate,
    FairQueue,
    Ticket,
    VirtualTokenCounter,
    work,
)


def measured(gaps: list[float], start: float = 0.0) -> tuple[DrainRate, float]:
    rate, now = DrainRate(), start
    rate.start(now)
    for gap in gaps:
        now += gap
        rate.freed(now)
    return rate, now


def test_the_pace_and_the_wait_behind_other_requests() -> None:
    rate, now = measured([0.5] * 20, start=1000.0)
    assert rate.gap(now) == pytest.approx(0.5)
    assert rate.wait(0, now) == pytest.approx(0.5)
    assert rate.wait(9, now) == pytest.approx(5.0)


def test_little_is_not_taken_for_knowledge() -> None:
    rate, now = measured([100.0] * (ENOUGH - 1))
    assert rate.wait(1000, now) == 0.0
    rate.freed(now + 100)
    assert rate.wait(1000, now + 100) == pytest.approx(100_100)


@pytest.mark.parametrize("burst", [2, 8, 32])
def test_bursts_are_not_taken_for_the_pace(burst: int) -> None:
    """Servers that answer in step free `burst` slots at once, every 10 s."""
    rate, now = measured(([10.0] + [0.0] * (burst - 1)) * 20)
    assert 0.4 < rate.gap(now) / (10.0 / burst) < 2.5


def test_a_change_of_pace_is_measured() -> None:
    rate, now = measured([1.0] * 100)
    for _ in range(100):
        now += 0.1
        rate.freed(now)
    assert 0.1 < rate.gap(now) < 0.15


def test_silence_counts() -> None:
    rate, now = measured([0.1] * 50)
    assert rate.gap(now + 0.1) == pytest.approx(0.1)
    assert rate.gap(now + 32) > 1.0


def test_idle_time_is_not_part_of_the_pace_and_ages_the_measurements() -> None:
    rate, now = measured([1.0] * 100)
    now += 10_000
    rate.start(now)
    rng = Random(1)
    for _ in range(20):
        now += rng.uniform(0.1, 0.3)
        rate.freed(now)
    assert rate.gap(now) < 0.6


SLOTS = 4
LARGEST_PROMPT = work(50, 0)
LARGEST_REST = work(0, 100)


@dataclass
class Server:
    """`SLOTS` requests at a time; the cost of an answer is known at its end."""

    shares: dict[str, float]
    rng: Random
    queue: FairQueue[Ticket] = field(default_factory=FairQueue)
    running: list[tuple[float, str, int]] = field(default_factory=list)
    charged: dict[str, float] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.queue.configure(self.shares, 0.0)
        self.charged = dict.fromkeys(self.shares, 0.0)

    def arrive(self, tenant: str) -> None:
        self.queue.push(Ticket(tenant, NORMAL, self.now + 30, work(self.rng.randint(1, 50), 0)))

    def step(self) -> None:
        """The next answer ends, and the next request takes its slot."""
        if self.running:
            self.now, tenant, made = min(self.running)
            self.running.remove((self.now, tenant, made))
            self._charge(tenant, work(0, made))
            self.queue.charge(tenant, NORMAL, work(0, made))
        while len(self.running) < SLOTS and self.queue.size:
            ticket = self.queue.next()
            self.queue.serve(ticket)
            self._charge(ticket.tenant, ticket.tokens)
            made = self.rng.randint(1, 100)
            self.running.append((self.now + made * self.rng.uniform(0.5, 1.5), ticket.tenant, made))

    def _charge(self, tenant: str, tokens: float) -> None:
        self.charged[tenant] += tokens / self.shares[tenant]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2),
    st.integers(0, 2**32),
)
def test_two_that_always_wait_are_served_alike_for_their_shares(shares: dict[str, float], seed: int) -> None:
    server = Server(shares, Random(seed))
    always, rest = sorted(shares)[:2], sorted(shares)[2:]
    bound = 2 * (LARGEST_PROMPT + SLOTS * LARGEST_REST) / min(shares.values())
    seen = []
    for tenant in always * 3:
        server.arrive(tenant)
    for _ in range(300):
        for tenant in always:
            server.arrive(tenant)
        if rest and server.rng.random() < 0.5:  # others come and go
            server.arrive(server.rng.choice(rest))
        server.step()
        first, second = (server.charged[tenant] for tenant in always)
        seen.append(first - second)
    assert max(seen) - min(seen) <= bound  # between any two moments


def test_a_tenant_that_was_idle_has_gathered_no_credit() -> None:
    server = Server({"busy": 1.0, "idle": 1.0}, Random(1))
    for _ in range(500):
        server.arrive("busy")
        server.step()
    before = dict(server.charged)
    for _ in range(300):
        server.arrive("busy")
        server.arrive("idle")
        server.step()
    served = {tenant: server.charged[tenant] - before[tenant] for tenant in before}
    assert abs(served["busy"] - served["idle"]) <= 2 * (LARGEST_PROMPT + SLOTS * LARGEST_REST)
    assert served["busy"] > 1000


def test_a_new_tenant_starts_at_the_lowest_of_those_that_wait_or_where_the_last_one_left() -> None:
    counter = VirtualTokenCounter()
    counter.join("a", ())
    counter.charge("a", 100, 1.0)
    counter.join("b", ["a"])
    assert counter.level("b") == 100
    counter.charge("b", 50, 2.0)
    counter.join("c", ["a", "b"])
    assert counter.level("c") == 100
    assert counter.next(["b", "c"]) == "c"
    counter.leave("b")
    counter.join("d", ())
    assert counter.level("d") == 125
    counter.join("b", ["c"])
    assert counter.level("b") == 125  # no level is lowered


def test_service_is_proportional_to_shares() -> None:
    server = Server({"one": 1.0, "three": 3.0}, Random(2))
    for _ in range(600):
        server.arrive("one")
        server.arrive("three")
        server.step()
    tokens = {tenant: server.charged[tenant] * share for tenant, share in server.shares.items()}
    assert 2.7 < tokens["three"] / tokens["one"] < 3.3


def test_a_request_without_tokens_takes_a_turn_too() -> None:
    assert work(0, 0) == 1.0
    assert work(10, 5) == 20.0


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
