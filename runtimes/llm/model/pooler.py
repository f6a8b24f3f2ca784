"""Hidden states to sums of vectors: one step's share of each text to embed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from runtimes.llm.engine.sequence import Chunk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


class Hidden(Protocol):
    """The part of an executor that a pooler uses."""

    def hidden(self, chunks: Sequence[Chunk]) -> "Tensor":
        """Compute the chunks, the hidden states of their tokens after the last norm: [T, hidden], float32."""


class Pooler:
    """Reduces chunks of texts to vectors. Stateless: the scheduler adds the contributions of a text's chunks."""

    def __init__(self, executor: Hidden) -> None:
        self._executor = executor

    def run(self, chunks: Sequence[Chunk]) -> "Mapping[int, NDArray[np.float32]]":
        """Each chunk's part of its sequence's vector [hidden], by sequence id: the sum of its tokens' states for a
        mean, else the one state that counts, where the chunk has it."""
        states = self._executor.hidden(chunks).float().cpu()
        sums, first = {}, 0
        for chunk in chunks:
            rows = states[first : first + len(chunk.token_ids)]
            first += len(chunk.token_ids)
            if chunk.pooling == "mean":
                sums[chunk.sequence_id] = rows.sum(dim=0).numpy()
            elif chunk.pooling == "last" and chunk.samples:
                sums[chunk.sequence_id] = rows[-1].clone().numpy()
            elif chunk.pooling == "cls" and chunk.start == 0:
                sums[chunk.sequence_id] = rows[0].clone().numpy()
        return sums
