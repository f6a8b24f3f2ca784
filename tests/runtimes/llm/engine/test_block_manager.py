import pytest

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.sequence import SamplingParams, Sequence

pytestmark = pytest.mark.plain


def sequence(identity: int = 0) -> Sequence:
    return Sequence(identity, [1], SamplingParams(max_tokens=1))


def test_a_page_is_taken_only_when_the_last_one_is_full() -> None:
    blocks, one = BlockManager(num_blocks=4, block_size=16), sequence()
    pages = []
    for tokens in (1, 16, 17, 32, 33):
        assert blocks.allocate(one, tokens)
        pages.append(len(one.block_table))
    assert pages == [1, 1, 2, 2, 3]
    assert blocks.num_free == 1


def test_allocation_never_shrinks_a_table() -> None:
    blocks, one = BlockManager(num_blocks=4, block_size=16), sequence()
    blocks.allocate(one, 40)
    assert blocks.allocate(one, 1)
    assert len(one.block_table) == 3


def test_allocation_is_all_or_nothing() -> None:
    blocks, one, two = BlockManager(num_blocks=4, block_size=16), sequence(0), sequence(1)
    assert blocks.allocate(one, 48)
    assert not blocks.allocate(two, 17)
    assert two.block_table == []
    assert blocks.num_free == 1


def test_free_returns_all_pages_and_resets_the_computed_count() -> None:
    blocks, one = BlockManager(num_blocks=4, block_size=16), sequence()
    blocks.allocate(one, 64)
    one.num_computed = 64
    blocks.free(one)
    assert (blocks.num_free, one.block_table, one.num_computed) == (4, [], 0)
    blocks.check_integrity([])


def test_integrity_names_a_leaked_page() -> None:
    blocks, one = BlockManager(num_blocks=2, block_size=16), sequence()
    blocks.allocate(one, 1)
    with pytest.raises(AssertionError, match=r"\{0: 'leaked'\}"):
        blocks.check_integrity([])


def test_integrity_names_a_page_held_twice() -> None:
    blocks, one, two = BlockManager(num_blocks=2, block_size=16), sequence(1), sequence(2)
    blocks.allocate(one, 1)
    two.block_table.extend(one.block_table)
    with pytest.raises(AssertionError, match="'sequence 1', 'sequence 2'"):
        blocks.check_integrity([one, two])


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (1, 0)])
def test_a_cache_of_nothing_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockManager(num_blocks, block_size)
