import itertools
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policies.balancing.affinity import CHUNK, DEPTH, HOLDERS, SLACK, PrefixAffinity, PrefixIndex, steps_of
from tests.support.candidates import Candidate, PickRequest, candidates

BOUND = 1.5


def prompt(*parts: int) -> bytes:
    """Each part is four chunks that depend on its number."""
    return b"".join(Random(part).randbytes(4 * CHUNK) for part in parts)


def request_for(*parts: int, tenant: str = "acme", model: str = "chat") -> PickRequest:
    return PickRequest(tenant=tenant, model=model, prompt=memoryview(prompt(*parts)))


def pick(picker: PrefixAffinity, pool: list[Candidate], request: PickRequest, rng: Random) -> Candidate:
    return picker.pick(pool, request, request, 0.0, rng)


def steps(data: bytes, tenant: str = "acme", model: str = "chat") -> list[bytes]:
    return steps_of(tenant, model, memoryview(data))


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.binary(max_size=2000))
def test_steps_are_equal_as_far_as_whole_chunks_of_the_prompts_are(common: bytes, one: bytes, other: bytes) -> None:
    a, b = steps(common + one), steps(common + other)
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        end = (i + 1) * CHUNK
        assert (left == right) == ((common + one)[:end] == (common + other)[:end])
    assert len(a) == len(common + one) // CHUNK


def test_a_long_prompt_costs_a_bounded_number_of_steps() -> None:
    assert len(steps(bytes((DEPTH + 50) * CHUNK))) == DEPTH


def test_tenants_and_models_share_no_step() -> None:
    data = prompt(1)
    assert not set(steps(data)) & set(steps(data, tenant="other"))
    assert not set(steps(data)) & set(steps(data, model="other"))
    assert not set(steps(data, "a", "b\0c")) & set(steps(data, "a\0b", "d"))


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 30)), max_size=40))
def test_the_index_is_bounded_in_steps_and_in_holders(additions: list[tuple[list[int], int]]) -> None:
    index = PrefixIndex(capacity=20)
    for parts, address in additions:
        path = steps(prompt(*parts))
        index.add(path, f"e{address}")
        assert len(index) <= 20
        assert all(len(index.holders(step)) <= HOLDERS for step in path)
        assert all(index.holders(step)[0] == f"e{address}" for step in path[:20])


def test_the_end_of_a_prompt_is_evicted_before_its_prefix() -> None:
    index = PrefixIndex(capacity=8)
    index.add(steps(prompt(1, 2)), "a")
    index.add(steps(prompt(3)), "b")
    remaining = [bool(index.holders(step)) for step in steps(prompt(1, 2))]
    assert remaining == [True] * 4 + [False] * 4


def test_a_conversation_stays_where_it_began() -> None:
    pool, rng, picker = candidates(*[1.0] * 8), Random(1), PrefixAffinity(BOUND)
    for _ in range(50):  # no endpoint is cold
        for c in pool:
            pick(picker, [c], request_for(99), rng)
    first = pick(picker, pool, request_for(1), rng)
    assert [pick(picker, pool, request_for(*range(1, turn)), rng) for turn in range(3, 9)] == [first] * 6


def test_a_prefix_of_all_prompts_does_not_bind_them() -> None:
    """A quarter of each prompt is the same: they spread as if it were not."""
    pool, rng, picker = candidates(*[1.0] * 4), Random(1), PrefixAffinity(BOUND)
    counts = Counter(pick(picker, pool, request_for(0, i, i + 1000, i + 2000), rng) for i in range(1, 401))
    assert all(70 < counts[c] < 130 for c in pool)


def test_another_tenants_prompts_steer_nothing() -> None:
    rng, pool = Random(1), candidates(*[1.0] * 4)
    for c in pool[1:]:
        c.in_flight = 1
    picker = PrefixAffinity(BOUND)
    assert {pick(picker, pool[:1], request_for(1, tenant="thief"), rng) for _ in range(50)} == {pool[0]}
    pool[0].in_flight = 2
    assert pick(picker, pool[:2], request_for(1), rng) is pool[1]


def test_the_only_holder_may_lead_by_the_slack_and_the_bound_and_no_more() -> None:
    pool, rng = candidates(1, 1), Random(1)
    holder, other = pool
    for least in (0, 10):
        picker = PrefixAffinity(BOUND)
        for _ in range(20):
            picker.pick([holder], request_for(1), request_for(1), 0.0, rng)
            picker.pick([other], request_for(2), request_for(2), 0.0, rng)
        other.in_flight = least
        holder.in_flight = int(BOUND * (least + 1)) + SLACK - 1
        assert pick(picker, pool, request_for(1), rng) is holder
        holder.in_flight += 1
        assert pick(picker, pool, request_for(1), rng) is other


def test_a_holder_that_is_overloaded_is_passed_over_and_others_become_holders() -> None:
    pool, rng, picker = candidates(1, 1), Random(1), PrefixAffinity(BOUND)
    for _ in range(60):
        pick(picker, pool, request_for(1), rng).in_flight += 1
    high, low = sorted((c.in_flight for c in pool), reverse=True)
    assert high <= BOUND * (low + 1) + SLACK
    assert set(picker._index.holders(steps(prompt(1))[-1])) == {"e0", "e1"}


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=300), st.integers(2, 6), st.integers(0, 2**32))
def test_no_hit_passes_the_load_guard(requests: list[tuple[int, bool]], count: int, seed: int) -> None:
    pool, rng, picker = candidates(*[1.0] * count), Random(seed), PrefixAffinity(BOUND)
    for part, ends in requests:
        least = min(c.in_flight for c in pool)
        picked = pick(picker, pool, request_for(part), rng)
        two_choices = picked.in_flight <= sorted(c.in_flight for c in pool)[-2]
        assert two_choices or picked.in_flight + 1 - SLACK <= BOUND * (least + 1)
        picked.in_flight += 1
        if ends:
            picked.in_flight -= 1


def test_a_new_replica_gets_a_share_although_every_prompt_is_cached_elsewhere() -> None:
    """Nothing is ever in flight, so the load guard has no effect: only exploration does."""
    pool, rng, picker = candidates(*[1.0] * 4), Random(1), PrefixAffinity(BOUND)
    for i in range(800):
        pick(picker, pool[:3], request_for(i % 40), rng)
    counts = Counter(pick(picker, pool, request_for(i % 40), rng) for i in range(800))
    assert 200 * 0.1 <= counts[pool[3]] <= 200


def test_exploring_costs_a_lone_conversation_little() -> None:
    """Everyone else is cold for ever, for there is nothing else to do."""
    pool, rng, picker = candidates(*[1.0] * 8), Random(1), PrefixAffinity(BOUND)
    picks = [pick(picker, pool, request_for(1), rng) for _ in range(2000)]
    moves = sum(before is not after for before, after in itertools.pairwise(picks))
    assert 0 < moves < 0.1 * 2000


def test_one_in_its_slow_start_is_explored_as_slowly() -> None:
    pool, rng, picker = candidates(1, 1, 1, 0.1), Random(1), PrefixAffinity(BOUND)
    pick(picker, pool[:1], request_for(1), rng)
    counts: Counter[Candidate] = Counter()
    for _ in range(400):
        picked = pick(picker, pool, request_for(1), rng)
        counts[picked] += 1
    assert counts[pool[3]] <= 5


def test_counts_are_bounded_while_endpoints_change() -> None:
    rng, picker = Random(1), PrefixAffinity(BOUND, capacity=50)
    for i in range(4000):
        pool = [Candidate(f"e{i // 4}-{j}") for j in range(2)]
        pick(picker, pool, request_for(i % 3), rng)
        assert len(picker._recent) <= 600
    assert len(picker._index) <= 50


@given(st.binary(max_size=CHUNK - 1))
def test_a_prompt_shorter_than_a_chunk_leaves_nothing(data: bytes) -> None:
    picker = PrefixAffinity(BOUND)
    pick(picker, candidates(1, 1), PickRequest(prompt=memoryview(data)), Random(1))
    assert len(picker._index) == 0
