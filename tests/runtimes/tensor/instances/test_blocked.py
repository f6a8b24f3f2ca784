"""Copies that wait for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.instances.services import BlockedCopies

pytestmark = pytest.mark.plain
MODELS = ("a", "b", "c")


def test_a_circle_is_detected_and_a_free_copy_opens_it() -> None:
    blocked = BlockedCopies()
    for name in ("a1", "a2", "b1"):
        blocked.add(name[0], name)
    assert blocked.block("a1", "b")
    assert blocked.block("b1", "a"), "a2 is free"
    assert not blocked.block("a2", "a")
    assert not blocked.block("a2", "b")
    assert blocked.block("a2", "an ensemble")
    blocked.release("a2")
    blocked.remove("a", "a2")
    blocked.release("a1")
    assert not blocked.block("a1", "b")


@given(
    st.lists(st.sampled_from(MODELS), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(MODELS)), max_size=30),
)
def test_some_copy_can_always_continue(copies: list[str], calls: list[tuple[int, str]]) -> None:
    """Whatever is recorded, each waiting copy waits for a model with a copy that is not stuck."""
    blocked = BlockedCopies()
    for number, model in enumerate(copies):
        blocked.add(model, number)
    waits: dict[int, str] = {}
    for number, model in calls:
        if number >= len(copies):
            continue
        if number in waits:
            blocked.release(number)
            del waits[number]
        elif blocked.block(number, model):
            waits[number] = model
        free = {number for number in range(len(copies)) if number not in waits}
        while more := {
            number
            for number, model in waits.items()
            if number not in free and (model not in copies or any(copies[other] == model for other in free))
        }:
            free |= more
        assert free == set(range(len(copies)))
