"""Properties of the models that share a device, over a simulation of arrivals, work, starts and stops."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.swapping import ModelState, SharedModel, swaps

PATIENCE = 10.0
STEP = 1.0


@dataclass
class SimulatedModel:
    """A model with its requests: the times of those that wait, and the ends of those that are computed."""

    name: str
    size: int
    cost: int
    service: int
    pinned: bool = False
    state: ModelState = "absent"
    since: float = 0.0
    used: float = 0.0
    waiting: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def seen(self, now: float) -> SharedModel:
        return SharedModel(
            self.name, self.size, self.state, len(self.waiting), now - min(self.waiting, default=now), len(self.ends),
            now - self.used, now - self.since, float(self.cost), self.pinned,
        )  # fmt: skip

    def step(self, now: float) -> None:
        self.ends = [end for end in self.ends if end > now]
        if self.state == "loading" and now - self.since >= self.cost:
            self.state, self.since = "loaded", now
        if self.state == "stopping" and not self.ends:
            self.state = "absent"
        if self.state == "loaded" and self.waiting:
            self.ends += [now + self.service] * len(self.waiting)
            self.waiting, self.used = [], now


models = st.lists(
    st.builds(
        SimulatedModel, name=st.just(""), size=st.integers(1, 10), cost=st.integers(0, 8), service=st.integers(1, 15)
    ),
    min_size=1,
    max_size=6,
)
arrivals = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=120)


@settings(max_examples=300, deadline=None)
@given(models, st.integers(1, 20), st.sets(st.integers(0, 5), max_size=2), arrivals)
def test_memory_is_never_exceeded_no_work_is_cut_off_and_each_model_is_loaded_in_the_end(
    made: list[SimulatedModel], memory: int, pins: set[int], arrivals: list[list[int]]
) -> None:
    for number, model in enumerate(made):
        model.name = str(number)
    for pin in sorted(pins):
        if pin < len(made) and sum(m.size for m in made if m.pinned) + made[pin].size <= memory:
            made[pin].pinned = True
    pinned = sum(model.size for model in made if model.pinned)
    # Each turn before its own: patience, the longest work, a stop and a start.
    turn = PATIENCE + max(m.service for m in made) + max(m.cost for m in made) + 4 * STEP
    bound = PATIENCE + turn * (len(made) + 1)
    now = 0.0
    for step in range(len(arrivals) + int(bound) + 2):
        now += STEP
        for number in arrivals[step] if step < len(arrivals) else ():
            if number < len(made):
                made[number].waiting.append(now)
        decided = swaps([model.seen(now) for model in made], memory, PATIENCE)
        by_name = {model.name: model for model in made}
        for name in decided.stop:
            model = by_name[name]
            assert (model.state, model.pinned) == ("loaded", False)
            model.state = "stopping"
        for name in decided.load:
            assert by_name[name].state == "absent"
            by_name[name].state, by_name[name].since = "loading", now
        assert sum(m.size for m in made if m.state != "absent") <= memory
        for model in made:
            model.step(now)
            possible = model.size <= memory - (0 if model.pinned else pinned)
            if model.waiting and possible:
                assert now - min(model.waiting) <= bound, "it starves"
            if model.waiting and not possible and model.state == "absent":
                assert not possible
    assert all(not m.waiting for m in made if m.size <= memory - (0 if m.pinned else pinned))


@given(st.integers(1, 100), st.integers(0, 100), st.booleans())
def test_a_model_that_is_larger_than_the_device_is_refused_with_both_sizes(size: int, memory: int, more: bool) -> None:
    small = SharedModel("small", 0, waiting=1)
    decided = swaps(
        [SharedModel("large", memory + size, waiting=1, waited=99.0), *([small] if more else [])], memory, 10
    )
    assert str(memory + size) in decided.refused["large"]
    assert str(memory) in decided.refused["large"]
    assert decided.load == (["small"] if more else []), "it holds up another model"


def test_the_least_recently_used_idle_model_is_stopped() -> None:
    old, new = SharedModel("old", 4, "loaded", unused=90), SharedModel("new", 4, "loaded", unused=5)
    decided = swaps([new, old, SharedModel("next", 4, waiting=1)], 8, 10)
    assert (decided.stop, decided.load) == (["old"], [])


def test_a_model_with_work_is_not_stopped_before_the_patience_of_another_ends() -> None:
    busy = SharedModel("busy", 8, "loaded", working=3, loaded=99)
    assert swaps([busy, SharedModel("next", 4, waiting=9, waited=9.9)], 8, 10).stop == []
    assert swaps([busy, SharedModel("next", 4, waiting=1, waited=10.0)], 8, 10).stop == ["busy"]


def test_the_most_requests_for_a_second_of_a_start_come_first() -> None:
    slow = SharedModel("slow", 8, waiting=20, cost=100.0)
    fast = SharedModel("fast", 8, waiting=2, cost=1.0)
    assert swaps([slow, fast], 8, 10).load == ["fast"]
    assert swaps([SharedModel("slow", 8, waiting=20, waited=11.0, cost=100.0), fast], 8, 10).load == ["slow"]


def test_a_small_model_takes_no_memory_from_one_that_has_waited_too_long() -> None:
    large = SharedModel("large", 8, waiting=1, waited=30.0)
    assert swaps([SharedModel("a", 4, "stopping"), large, SharedModel("b", 4, waiting=9)], 8, 10).load == []


def test_memory_that_a_stopping_model_frees_soon_stops_no_other_model() -> None:
    models = [SharedModel("going", 4, "stopping"), SharedModel("idle", 4, "loaded", unused=90)]
    assert swaps([*models, SharedModel("next", 4, waiting=1)], 8, 10).stop == []
    assert swaps([*models, SharedModel("next", 5, waiting=1)], 8, 10).stop == ["idle"]
