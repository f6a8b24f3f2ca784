"""The soak's judgement: what counts as a leak, and what as a wrong answer."""

import pytest

from loadtests.soaks.tensor import Process, quarters, verdict
from loadtests.tensors.clients import Seen

pytestmark = pytest.mark.plain

MIB = float(1 << 20)


def sampled(memory: list[float], files: list[float] | None = None) -> Process:
    return Process("runtime", 1, memory, files or [20.0] * len(memory), [3.0] * len(memory))


def test_the_first_quarter_is_for_heaps_to_fill() -> None:
    assert quarters([0, 0, 10, 10, 10, 10, 12, 14]) == (10, 13)
    assert not sampled([10 * MIB, 10 * MIB, *[200 * MIB] * 6]).leaks()


def test_memory_or_files_that_grow_to_the_end_are_a_leak() -> None:
    assert sampled([(100 + 10 * index) * MIB for index in range(40)]).leaks()
    assert sampled([100 * MIB] * 40, [20.0 + index for index in range(40)]).leaks()
    assert not sampled([100 * MIB, 103 * MIB] * 20, [20.0, 24.0] * 20).leaks()


def test_wrong_answers_are_reported() -> None:
    steady = sampled([100 * MIB] * 8)
    assert verdict([steady], [Seen(right=5), Seen(right=5)], kills=3) == []
    assert verdict([steady], [Seen(right=5, wrong=["7 instead of 8"]), Seen(right=5)], 3) == ["7 instead of 8"]
    assert verdict([steady], [Seen(right=5), Seen(right=5, broken=1)], 3)
    assert verdict([steady], [Seen(right=5), Seen()], 3)
    assert verdict([steady], [Seen(right=5), Seen(right=5)], 0)
