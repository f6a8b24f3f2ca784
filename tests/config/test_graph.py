"""Facts about graphs of steps."""

import random

from config.graph import GraphStep, cycle, needed, predecessors


def test_a_cycle_is_named_in_its_order() -> None:
    steps = [
        GraphStep("a", ("z",), ("x",)),
        GraphStep("b", ("x",), ("y",)),
        GraphStep("c", ("y",), ("z",)),
        GraphStep("d", ("x",), ("w",)),
    ]
    edges = predecessors(steps)
    circle = cycle(edges)
    assert sorted(circle) == ["a", "b", "c"]
    assert all(before in edges[after] for before, after in zip(circle, (*circle[1:], circle[0]), strict=True))
    assert cycle(predecessors(steps[1:])) == ()


def test_a_step_that_needs_its_own_output_is_a_cycle() -> None:
    assert cycle(predecessors([GraphStep("a", ("x",), ("x",))])) == ("a",)


def test_steps_that_no_output_needs_are_left_out_and_checks_are_not() -> None:
    steps = [
        GraphStep("check", ("b",)),
        GraphStep("first", ("in",), ("a", "b")),
        GraphStep("second", ("a",), ("out",)),
        GraphStep("other", ("in",), ("more",)),
    ]
    assert [step.name for step in needed(steps, ["out"])] == ["check", "first", "second"]
    assert [step.name for step in needed(steps, ["more"])] == ["check", "first", "other"]
    assert [step.name for step in needed(steps[1:], ["more"])] == ["other"]


def test_facts_of_random_graphs_agree_with_each_other() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        values = [f"v{i}" for i in range(rng.randint(1, 12))]
        steps = [
            GraphStep(f"s{i}", tuple(rng.sample(values, rng.randint(0, 2) % (len(values) + 1))), (rng.choice(values),))
            for i in range(rng.randint(1, 8))
            if len(values) >= 2
        ]
        edges = predecessors(steps)
        circle = cycle(edges)
        assert all(before in edges[after] for before, after in zip(circle, (*circle[1:], *circle[:1]), strict=True))
        everything = needed(steps, values)
        assert list(everything) == steps
        for value in values:
            part = needed(steps, [value])
            names = {step.name for step in part}
            assert all(set(edges[name]) <= names for name in names), "a part contains all that its steps depend on"
            assert all(step.name in names for step in steps if value in step.outputs)
