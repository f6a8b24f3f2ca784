"""Which KV page belongs to whom.

The cache is cut into pages ("blocks") of `block_size` token positions; a sequence's block table maps its
positions to pages, as virtual memory does (Kwon et al. 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention", https://arxiv.org/abs/2309.06180).
"""

from collections.abc import Iterable

from runtimes.llm.sequence import Sequence


class BlockManager:
    """Owns `num_blocks` pages. Every page is free or in exactly one block table."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"need at least one block of one token, not {num_blocks} of {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        # A stack: the page freed last is the one most likely still in a CPU cache.
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Token positions in all pages together."""
        return self.num_blocks * self.block_size

    def allocate(self, sequence: Sequence, num_tokens: int) -> bool:
        """Lengthen the block table to hold `num_tokens` positions; False, and no change, if pages run out."""
        missing = -(-num_tokens // self.block_size) - len(sequence.block_table)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            sequence.block_table.append(self._free.pop())
        return True

    def free(self, sequence: Sequence) -> None:
        """Take every page back; the sequence's keys and values are gone."""
        self._free.extend(reversed(sequence.block_table))
        sequence.block_table.clear()
        sequence.num_computed = 0

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raise AssertionError unless each page is free or held by one of `sequences`, and only once."""
        owners: dict[int, list[str]] = {block: [] for block in range(self.num_blocks)}
        for block in self._free:
            owners[block].append("free")
        for sequence in sequences:
            for block in sequence.block_table:
                owners[block].append(f"sequence {sequence.id}")
        wrong = {block: held or "leaked" for block, held in owners.items() if len(held) != 1}
        if wrong:
            raise AssertionError(f"KV pages without exactly one owner: {wrong}")
