"""The bound of the paper, on virtual time: what two tenants that always wait are served differs by a constant."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.fairness import VirtualTokenCounter, work
from policies.queueing import NORMAL, FairQueue, Ticket

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
