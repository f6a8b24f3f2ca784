"""Tenants beside each other in one engine whose runner computes nothing: each step is one unit of time."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.queue import COMPLETION, MAX_TENANTS, PROMPT, ServedTokens
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Sampled, SamplingParams, Sequence, Standing

pytestmark = pytest.mark.plain
SLOTS, BUDGET = 4, 24
LONGEST_PROMPT, LONGEST_ANSWER = 60, 30


class Engine:
    """Serves tenants that always have `BACKLOG` requests waiting, and other tenants at their arrivals."""

    BACKLOG = 3

    def __init__(self, shares: dict[str, float], seed: int, num_blocks: int = 200) -> None:
        bounds = SchedulerConfig(max_model_len=128, max_num_seqs=SLOTS, max_num_batched_tokens=BUDGET, max_queue=10_000)
        self.scheduler = Scheduler(bounds, BlockManager(num_blocks, 4, caching=False))
        self.shares = shares
        self.rng = Random(seed)
        self.served = dict.fromkeys(shares, 0.0)
        self.waiting: Counter[str] = Counter()
        self.live: dict[int, Sequence] = {}
        self.ends: list[int] = []

    def arrive(self, tenant: str, priority: int = 0) -> Sequence:
        prompt = [1] * self.rng.randint(1, LONGEST_PROMPT)
        params = SamplingParams(max_tokens=self.rng.randint(1, LONGEST_ANSWER))
        standing = Standing(tenant, self.shares[tenant], priority)
        sequence = Sequence(len(self.live) + len(self.ends), prompt, params, standing=standing)
        self.scheduler.add(sequence)
        self.live[sequence.id] = sequence
        return sequence

    def keep_waiting(self, *tenants: str) -> None:
        waiting = Counter(one.standing.tenant for one in self.live.values() if not one.block_table)
        for tenant in tenants:
            for _ in range(self.BACKLOG - waiting[tenant]):
                self.arrive(tenant)

    def step(self) -> None:
        batch = self.scheduler.schedule()
        computed = {one.id: one.num_charged for one in self.live.values()}
        for chunk in batch.chunks:
            sequence = self.live[chunk.sequence_id]
            tokens = min(chunk.end, sequence.num_prompt_tokens) - chunk.start
            if tokens > 0 and computed[sequence.id] == chunk.end:  # not what is computed anew after a preemption
                self.serve(sequence, PROMPT * tokens)
        outputs = self.scheduler.update(
            batch, {chunk.sequence_id: Sampled(5) for chunk in batch.chunks if chunk.samples}
        )
        for identity, output in outputs.items():
            self.serve(self.live[identity], COMPLETION)
            if output.finish_reason is not None:
                del self.live[identity]
                self.ends.append(identity)

    def serve(self, sequence: Sequence, tokens: float) -> None:
        self.served[sequence.standing.tenant] += tokens / sequence.standing.share


@settings(max_examples=10, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.5, 1.0, 2.0]), min_size=2),
    st.integers(0, 2**32),
)
def test_two_that_always_wait_are_served_alike_for_their_shares(shares: dict[str, float], seed: int) -> None:
    """Between any two moments the difference is bounded, for any duration."""
    engine = Engine(shares, seed)
    always, rest = sorted(shares)[:2], sorted(shares)[2:]
    # How far one can run ahead of the lowest: a step of prompts, and the answers of all places.
    bound = 2 * (PROMPT * BUDGET + COMPLETION * SLOTS * LONGEST_ANSWER) / min(shares.values())
    apart = []
    for _ in range(400):
        engine.keep_waiting(*always)
        if rest and engine.rng.random() < 0.2:  # others come and go
            engine.arrive(engine.rng.choice(rest))
        engine.step()
        first, second = (engine.served[tenant] for tenant in always)
        apart.append(first - second)
    assert max(apart) - min(apart) <= bound
    assert min(engine.served[tenant] * shares[tenant] for tenant in always) > 400  # and both are


def test_shares_weigh() -> None:
    engine = Engine({"one": 1.0, "three": 3.0}, seed=2)
    for _ in range(1500):
        engine.keep_waiting("one", "three")
        engine.step()
    tokens = {tenant: engine.served[tenant] * share for tenant, share in engine.shares.items()}
    assert 2.6 < tokens["three"] / tokens["one"] < 3.4


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_a_flood_delays_other_tenants_by_the_running_requests_at_most(seed: int) -> None:
    engine = Engine({"flood": 1.0, "quiet": 1.0}, seed)
    for _ in range(300):
        engine.arrive("flood")
    for _ in range(50):
        engine.step()
    quiet = engine.arrive("quiet")
    steps = 0
    while quiet.id in engine.live:
        engine.step()
        steps += 1
    # A place within the longest answer that runs, its own prompt, its own answer.
    assert steps <= LONGEST_ANSWER + LONGEST_PROMPT + LONGEST_ANSWER


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([32, 40, 200]))
def test_everyone_of_a_priority_comes_to_an_end(seed: int, num_blocks: int) -> None:
    """Also where pages are so few that sequences give way to each other."""
    engine = Engine({"a": 1.0, "b": 2.0, "c": 0.5}, seed, num_blocks)
    early = [engine.arrive(tenant).id for tenant in "abcabc"]
    for _ in range(3000):
        engine.keep_waiting("a", "b", "c")
        engine.step()
        if set(early) <= set(engine.ends):
            return
    raise AssertionError(f"starved: {set(early) - set(engine.ends)}")


def test_a_higher_priority_waits_for_a_lower_one_no_longer_than_a_step() -> None:
    engine = Engine({"batch": 1.0, "live": 1.0}, seed=5)
    for _ in range(20):
        engine.arrive("batch", priority=1)
    for _ in range(30):
        engine.step()
    assert engine.scheduler.num_running == SLOTS
    urgent = [engine.arrive("live") for _ in range(SLOTS)]
    for _ in range(LONGEST_PROMPT * SLOTS // (BUDGET - SLOTS) + 2):
        engine.step()
    assert all(one.begun for one in urgent)
    assert engine.scheduler.num_preemptions >= SLOTS - 1
    while engine.live:
        engine.step()
    assert len(engine.ends) == 20 + SLOTS
    engine.scheduler.check_integrity()


def test_a_tenant_that_was_idle_has_gathered_no_credit() -> None:
    counter = ServedTokens()
    counter.join("a", set())
    counter.charge("a", 100, 1.0)
    counter.join("b", {"a"})
    assert counter.level("b") == 100
    counter.charge("b", 50, 2.0)
    counter.join("c", {"a", "b"})
    assert counter.level("c") == 100
    counter.leave("b")
    counter.join("d", set())
    assert counter.level("d") == 125
    counter.join("b", {"c"})
    assert counter.level("b") == 125  # no level is lowered


def test_it_remembers_a_bounded_number_of_tenants() -> None:
    counter = ServedTokens()
    waiting = {"stays"}
    counter.join("stays", set())
    counter.charge("stays", 7, 1.0)
    for number in range(3 * MAX_TENANTS):
        counter.join(f"t{number}", waiting)
        counter.leave(f"t{number}")
    assert len(counter._levels) <= MAX_TENANTS + 2
    assert counter.level("stays") == 7


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan"), float("inf")])
def test_a_share_is_a_weight(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        Standing("t", share)
