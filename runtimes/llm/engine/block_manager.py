"""The pages of the KV cache: which sequence holds each, and the prefix cache of computed pages.

The cache is cut into pages ("blocks") of `block_size` token positions; a sequence's block table maps its
positions to pages, as virtual memory does (Kwon et al. 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention", https://arxiv.org/abs/2309.06180).

A full page is indexed by a digest of its tokens, of the pictures that some stand for, and of all before them. A page
without users stays in the cache until its memory is needed; the least recently used page is evicted first. A sequence
that begins with the same tokens reuses it. Keys and values depend on nothing else, so answers do not change. Digests
begin with the sequence's `salt`: sequences of another salt share no page, and so their speed reveals nothing.

Recurrent layers have a state beside the pages (`state_slots`): a cached page is used as far as a copy of it goes.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from itertools import chain

from runtimes.llm.engine.state_slots import StateSlots
from runtimes.llm.sequence import Sequence


class BlockManager:
    """Owns `num_blocks` pages, and the slots of `states` if the model has them. Every page is free, evictable, or in
    block tables."""

    def __init__(
        self, num_blocks: int, block_size: int, *, caching: bool = True, states: StateSlots | None = None
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"need at least one block of one token, not {num_blocks} of {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caching = caching
        self.states = states
        # A stack: the page freed last is the one most likely still in a CPU cache.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._evictable: OrderedDict[int, None] = OrderedDict()  # the next one to evict in front
        self._users = [0] * num_blocks
        self._digests: list[bytes | None] = [None] * num_blocks  # of the pages in the index
        self._index: dict[bytes, int] = {}
        self._awaited: dict[bytes, int] = {}  # pages that are about to be computed, and by which sequence

    @property
    def num_free(self) -> int:
        """The number of free and evictable pages."""
        return len(self._free) + len(self._evictable)

    @property
    def capacity(self) -> int:
        """Token positions in all pages together."""
        return self.num_blocks * self.block_size

    def prepare(self, sequence: Sequence) -> None:
        """Compute the digests of a sequence's pages. It changes the sequence only, and may run in any thread."""
        if self.caching:
            self._digests_of(sequence, len(sequence) // self.block_size)

    def computed_by(self, sequence: Sequence) -> int | None:
        """The sequence that is about to compute this sequence's next page, if there is one."""
        if self.states is not None:
            return self.states.computed_by(self._digests_of(sequence, (len(sequence) - 1) // self.block_size))
        if self._awaited:
            for digest in self._digests_of(sequence, (len(sequence) - 1) // self.block_size):
                if digest not in self._index:
                    return self._awaited.get(digest)
        return None

    def take_over(self, sequence: Sequence) -> None:
        """Begin a block table with the cached pages of the sequence's first tokens.

        The last token is always computed: its logits are the result of the step.
        """
        if not self.caching:
            return
        digests = self._digests_of(sequence, (len(sequence) - 1) // self.block_size)
        blocks = self._cached(digests)
        if self.states is not None:
            del blocks[self.states.take(sequence, digests[: len(blocks)], self.block_size) :]
        for block in blocks:
            self._evictable.pop(block, None)
            self._users[block] += 1
            sequence.block_table.append(block)
        sequence.num_computed = len(sequence.block_table) * self.block_size

    def allocate(self, sequence: Sequence, num_tokens: int) -> bool:
        """Extend the block table to hold `num_tokens` positions; False, without a change, if pages run out."""
        missing = -(-num_tokens // self.block_size) - len(sequence.block_table)
        if missing > self.num_free or not (self.states is None or self.states.allocate(sequence)):
            return False
        for _ in range(missing):
            block = self._free.pop() if self._free else self._give_up()
            self._users[block] = 1
            sequence.block_table.append(block)
        return True

    def trim(self, sequence: Sequence) -> None:
        """Free the pages behind the sequence's last token: they hold only refused proposals."""
        while len(sequence.block_table) * self.block_size - len(sequence) >= self.block_size:
            block = sequence.block_table.pop()
            self._users[block] = 0
            self._free.append(block)

    def begin(self, sequence: Sequence) -> None:
        """Announce the pages that the sequence will compute; sequences with the same beginning wait for them."""
        if self.caching:
            digests = self._digests_of(sequence, len(sequence) // self.block_size)
            if self.states is not None:
                self.states.plan(sequence, digests, len(self._cached(digests)), self.block_size)
            for digest in digests[sequence.num_computed // self.block_size :]:
                self._awaited.setdefault(digest, sequence.id)

    def keep(self, sequence: Sequence) -> None:
        """Add the computed full pages of a sequence to the index."""
        if not self.caching:
            return
        full = sequence.num_computed // self.block_size
        if full == sequence.num_indexed:
            return
        digests = self._digests_of(sequence, full)
        for index in range(sequence.num_indexed, full):
            block = sequence.block_table[index]
            # Of two sequences that computed the same page at once, each uses its own, and one of the two is indexed.
            if self._digests[block] is None and digests[index] not in self._index:
                self._digests[block] = digests[index]
                self._index[digests[index]] = block
            self._await_no_more(digests[index], sequence)
        sequence.num_indexed = full
        if self.states is not None:
            self.states.reached(sequence, digests, self.block_size)

    def free(self, sequence: Sequence) -> None:
        """Release every page of a sequence; its keys and values must be computed again."""
        # From its end: a page is useless without those before it.
        for block in reversed(sequence.block_table):
            self._users[block] -= 1
            if self._users[block]:
                continue
            if self._digests[block] is None:
                self._free.append(block)
            else:
                self._evictable[block] = None
        for digest in sequence.digests[sequence.num_indexed :]:
            self._await_no_more(digest, sequence)
        if self.states is not None:
            self.states.release(sequence)
        sequence.block_table = []  # a new list: a running step may still read the old one
        sequence.num_computed = sequence.num_indexed = 0

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raise AssertionError unless each page is free, cached or in use, with the right number of users."""
        sequences = list(sequences)
        owners: dict[int, list[str]] = {block: [] for block in range(self.num_blocks)}
        for block in chain(self._free, self._evictable):
            owners[block].append("free")
        for sequence in sequences:
            for block in sequence.block_table:
                owners[block].append(f"sequence {sequence.id}")
        wrong = {}
        for block, held in owners.items():
            if held != ["free"] and (not held or "free" in held or len(held) != self._users[block]):
                wrong[block] = held or "leaked"
        if wrong:
            raise AssertionError(f"KV pages without exactly the owners that are counted: {wrong}")
        indexed = {digest: block for block, digest in enumerate(self._digests) if digest is not None}
        if indexed != self._index or any(self._digests[block] is not None for block in self._free):
            raise AssertionError("the index of cached pages does not match their states")
        if not set(self._awaited.values()) <= {sequence.id for sequence in sequences if sequence.block_table}:
            raise AssertionError("pages are awaited that no step computes")
        if self.states is not None:
            self.states.check_integrity(sequences)

    def _cached(self, digests: Iterable[bytes]) -> list[int]:
        """The cached pages of the first of these digests."""
        blocks = []
        for digest in digests:
            if (block := self._index.get(digest)) is None:
                break
            blocks.append(block)
        return blocks

    def _await_no_more(self, digest: bytes, sequence: Sequence) -> None:
        if self._awaited.get(digest) == sequence.id:
            del self._awaited[digest]

    def _give_up(self) -> int:
        """Evict a cached page for other tokens."""
        block, _ = self._evictable.popitem(last=False)
        digest, self._digests[block] = self._digests[block], None
        assert digest is not None
        del self._index[digest]
        return block

    def _digests_of(self, sequence: Sequence, count: int) -> list[bytes]:
        """The digests of at least `count` full pages, computed once for each page."""
        digests, size = sequence.digests, self.block_size
        while len(digests) < count:
            at = len(digests) * size
            before = digests[-1] if digests else sequence.salt
            page = array("I", sequence.token_ids[at : at + size]).tobytes()
            if sequence.pictures is not None:
                page += sequence.pictures.digest(at, at + size)
            digests.append(blake2b(page, digest_size=16, key=before).digest())
        return digests[:count]
