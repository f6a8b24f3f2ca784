"""Slots of recurrent states: whose they are, and which copies let a prompt begin within another."""

import pytest

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.state_slots import StateSlots
from runtimes.llm.sequence import SamplingParams, Sequence
from runtimes.llm.states import StateUse

pytestmark = pytest.mark.plain
PAGE = 4


def manager(slots: int, pages: int = 64) -> BlockManager:
    return BlockManager(pages, PAGE, states=StateSlots(slots))


def start(blocks: BlockManager, identity: int, tokens: list[int]) -> Sequence | None:
    sequence = Sequence(identity, tokens, SamplingParams(max_tokens=8))
    blocks.take_over(sequence)
    if not blocks.allocate(sequence, len(sequence)):
        blocks.free(sequence)
        return None
    blocks.begin(sequence)
    return sequence


def begun(blocks: BlockManager, identity: int, tokens: list[int]) -> Sequence:
    sequence = start(blocks, identity, tokens)
    assert sequence is not None
    return sequence


def compute(blocks: BlockManager, sequence: Sequence) -> StateUse:
    """All tokens in one chunk."""
    use = sequence.chunk(len(sequence)).state
    assert use is not None
    sequence.num_computed = len(sequence)
    blocks.keep(sequence)
    return use


def served(blocks: BlockManager, identity: int, tokens: list[int]) -> int:
    """The tokens that a prompt begins with, which has then come to its end."""
    sequence = begun(blocks, identity, tokens)
    cached = sequence.num_computed
    compute(blocks, sequence)
    blocks.free(sequence)
    blocks.check_integrity([])
    return cached


def test_a_prompt_again_and_its_next_turn_begin_at_its_last_page() -> None:
    blocks = manager(slots=4)
    prompt = list(range(10))
    assert served(blocks, 0, prompt) == 0
    assert served(blocks, 1, prompt) == 8
    assert served(blocks, 2, [*prompt, 50, 51, 52, 53]) == 8


def test_a_shared_beginning_is_copied_where_the_second_prompt_parts_from_it() -> None:
    blocks = manager(slots=6)
    shared = list(range(12))
    assert served(blocks, 0, [*shared, *[50] * 10]) == 0
    assert served(blocks, 1, [*shared, *[60] * 10]) == 0
    assert served(blocks, 2, [*shared, *[70] * 10]) == 12


def test_a_chunk_names_the_slots_of_its_copies_in_order() -> None:
    blocks = manager(slots=6)
    served(blocks, 0, [*range(12), *[50] * 10])
    sequence = begun(blocks, 1, [*range(12), *[60] * 10])
    state = sequence.state
    assert state is not None
    use = compute(blocks, sequence)
    assert [position for position, _ in use.ends] == [12, 20, 22]
    assert use.source is None
    assert use.ends[-1][1] == state.slot
    assert len({slot for _, slot in use.ends}) == 3


def test_a_copy_that_is_about_to_be_read_is_not_given_up() -> None:
    blocks = manager(slots=2)
    served(blocks, 0, list(range(9)))
    reader = begun(blocks, 1, list(range(9)))
    assert reader.num_computed == 8
    assert start(blocks, 2, [70] * 9) is None
    compute(blocks, reader)
    other = begun(blocks, 2, [70] * 9)
    blocks.check_integrity([reader, other])
    assert reader.state is not None
    assert other.state is not None
    assert reader.state.slot != other.state.slot


def test_the_last_slot_is_made_the_sequences_own() -> None:
    """Without another there would be none to run in."""
    blocks = manager(slots=1)
    first = begun(blocks, 0, list(range(9)))
    compute(blocks, first)
    states = blocks.states
    assert states is not None
    states.plan(first, first.digests, 2, PAGE)
    assert first.state is not None
    assert not first.state.due
    assert start(blocks, 1, [5] * 9) is None
    blocks.free(first)
    blocks = manager(slots=2)
    served(blocks, 0, list(range(9)))
    other = begun(blocks, 1, [70, 71])
    again = begun(blocks, 2, list(range(9)))
    use = again.chunk(9).state
    assert use is not None
    assert (again.num_computed, [(9, use.source)]) == (8, list(use.ends))
    blocks.check_integrity([other, again])


def test_equal_prompts_wait_for_the_one_that_makes_the_copy() -> None:
    blocks = manager(slots=4)
    first = begun(blocks, 7, list(range(10)))
    twin = Sequence(8, list(range(10)), SamplingParams(max_tokens=8))
    longer = Sequence(9, list(range(14)), SamplingParams(max_tokens=8))
    assert blocks.computed_by(twin) == 7
    assert blocks.computed_by(longer) is None  # it ends with another page, of which none makes a copy
    blocks.free(first)
    assert blocks.computed_by(twin) is None


def test_without_a_prefix_cache_there_are_no_copies() -> None:
    blocks = BlockManager(8, PAGE, caching=False, states=StateSlots(1))
    assert [served(blocks, identity, list(range(9))) for identity in range(3)] == [0, 0, 0]


def test_no_slot_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        StateSlots(0)
