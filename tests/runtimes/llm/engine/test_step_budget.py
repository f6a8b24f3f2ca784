"""The time that prompts may add to a step, with steps of made costs."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.engine.step_budget import SMALLEST_SHARE, StepBudget

pytestmark = pytest.mark.plain
MOST, TARGET = 512, 0.05


@dataclass(frozen=True)
class Machine:
    """Seconds of a step: a part for sequences that decode, and of each prompt token by its position."""

    decode: float
    token: float
    growth: float = 0.0

    def seconds(self, decodes: int, prompt_tokens: int, position: int = 0) -> float:
        return self.decode * bool(decodes) + prompt_tokens * self.token * (1 + self.growth * position)


def test_alone_a_prompt_has_the_whole_step() -> None:
    budget = StepBudget(MOST, TARGET)
    assert budget.prompt_tokens(0) == MOST
    budget.measured(0, MOST, 0.2)
    assert budget.prompt_tokens(0) == MOST
    assert budget.prompt_tokens(4) < MOST / 2


def test_without_a_measurement_the_step_is_full() -> None:
    budget = StepBudget(MOST, TARGET)
    budget.measured(3, 100, 0.0)
    assert budget.prompt_tokens(3) == MOST - 3


@given(
    decode=st.floats(0.001, 0.5),
    token=st.floats(1e-5, 2e-3),
    growth=st.floats(0, 1e-3),
    decodes=st.integers(1, 32),
)
def test_steps_last_as_long_as_the_target_while_a_prompt_advances(
    decode: float, token: float, growth: float, decodes: int
) -> None:
    machine, budget, position = Machine(decode, token, growth), StepBudget(MOST, TARGET), 0
    budget.measured(decodes, 0, decode)
    for step in range(40):
        count = budget.prompt_tokens(decodes)
        assert MOST // SMALLEST_SHARE <= count <= MOST - decodes
        seconds = machine.seconds(decodes, count, position)
        if step >= 8:
            least = machine.seconds(decodes, MOST // SMALLEST_SHARE, position)
            assert seconds <= max(1.3 * max(TARGET, 2 * decode), least)
            if count < MOST - decodes:
                assert seconds >= 0.7 * TARGET
        budget.measured(decodes, count, seconds)
        position += count


def test_other_sequences_than_were_measured_change_the_chunk_and_not_the_length_of_the_step() -> None:
    budget, small, large = StepBudget(MOST, TARGET), Machine(0.005, 0.0004), Machine(0.03, 0.0004)
    budget.measured(1, 0, small.decode)
    for _ in range(12):
        count = budget.prompt_tokens(16)
        budget.measured(16, count, large.seconds(16, count))
    assert large.seconds(16, budget.prompt_tokens(16)) == pytest.approx(max(TARGET, 0.03 + 64 * 0.0004), rel=0.1)


def test_the_short_end_of_a_prompt_barely_changes_the_cost_of_tokens() -> None:
    budget = StepBudget(MOST, TARGET)
    budget.measured(0, 512, 0.2)
    before = budget.prompt_tokens(1)
    budget.measured(0, 3, 0.01)  # nearly all of it is reading the weights
    assert before > budget.prompt_tokens(1) > before / 2
