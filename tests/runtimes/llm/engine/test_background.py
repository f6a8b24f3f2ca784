"""Background work beside live prompts, in steps of made costs: it rests for first tokens, and takes the rest."""

from functools import cache
from random import Random
from statistics import quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.wire.internal_headers import PRIORITIES
from tests.support.clocked_scheduler import Clocked

pytestmark = pytest.mark.plain
BATCH = PRIORITIES["batch"]
SECONDS, PLACES = 60.0, 48


class Beside(Clocked):
    """Live requests at random times, and lines of a batch that fill their places again as they end."""

    def __init__(self, rate: float, lines: int, seed: int = 1) -> None:
        super().__init__()
        self.rng = Random(seed)
        self.live: dict[int, float] = {}
        self.lines: set[int] = set()
        self.line_tokens = self.live_tokens = 0
        self.busy = 0.0
        self._rate, self._places = rate, lines

    def run(self) -> None:
        upcoming = self.rng.expovariate(self._rate) if self._rate else float("inf")
        while self.now < SECONDS:
            while upcoming <= self.now:
                self.live[self.arrive(256, 24, "live")] = upcoming
                upcoming += self.rng.expovariate(self._rate)
            while len(self.lines) < self._places:
                self.lines.add(self.arrive(128, 32, "batch", BATCH))
            if not self.scheduler.has_work:
                self.now = min(upcoming, SECONDS)
                continue
            begun = self.now
            ended = self.step()
            self.busy += self.now - begun
            self.line_tokens += 160 * len(self.lines.intersection(ended))
            self.lines.difference_update(ended)

    def p95(self) -> float:
        waits = [self.first[one] - arrived for one, arrived in self.live.items() if one in self.first]
        return quantiles(waits, n=20)[-1]


@cache
def ran(rate: float, lines: int) -> Beside:
    made = Beside(rate, lines)
    made.run()
    return made


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0])
def test_first_tokens_hardly_wait_for_a_batch_that_takes_the_rest(rate: float) -> None:
    alone, beside, batch = ran(rate, 0), ran(rate, PLACES), ran(0.0, PLACES)
    assert len(beside.live) == len(alone.live) > 20
    assert beside.p95() <= 1.1 * alone.p95() + 0.025  # half of the usual time of a step
    assert beside.line_tokens >= 0.8 * batch.line_tokens * (1.0 - alone.busy / SECONDS)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 12), st.sampled_from([-1, 0, 1, BATCH])), max_size=20))
def test_every_sequence_ends_whatever_its_priority(arrivals: list[tuple[int, int, int]]) -> None:
    engine = Clocked()
    for prompt, answer, priority in arrivals:
        engine.arrive(prompt, answer, f"t{priority}", priority)
        engine.step()
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()
    assert sorted(engine.ended) == list(range(len(arrivals)))


def test_a_line_rests_while_a_live_prompt_is_computed() -> None:
    engine = Clocked()
    line = engine.arrive(16, 64, "batch", BATCH)
    engine.step()
    assert line in engine.first
    live = engine.arrive(600, 4, "live")
    while live not in engine.first:
        batch = engine.scheduler.schedule(engine.now)
        assert {chunk.sequence_id for chunk in batch.chunks} == {live}
        engine.step()
    assert {chunk.sequence_id for chunk in engine.scheduler.schedule(engine.now).chunks} == {live, line}
