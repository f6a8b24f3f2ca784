"""Changes a request makes to the logits before sampling, in vLLM's order: bias, penalties, excluded tokens.

Rows without such parameters cost nothing; the others are changed together, in place, at the affected tokens only.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from adapters.errors import BackendError, InferenceError
from runtimes.llm.engine.sequence import Chunk, TokenTally


def process(logits: Tensor, chunks: Sequence[Chunk]) -> dict[int, InferenceError]:
    """Apply the chunks' parameters to `logits` [len(chunks), vocab].

    Returns the failure of each row that failed alone.
    """
    if biased := [row for row, chunk in enumerate(chunks) if chunk.params.bias_ids]:
        _add_biases(logits, biased, chunks)
    penalized = [(row, chunk.tally) for row, chunk in enumerate(chunks) if chunk.tally is not None and chunk.tally.ids]
    if penalized:
        _penalize(logits, penalized, chunks)
    for row, chunk in enumerate(chunks):
        if chunk.banned:
            logits[row, list(chunk.banned)] = -torch.inf
    if constrained := [row for row, chunk in enumerate(chunks) if chunk.constraint is not None]:
        return _constrain(logits, constrained, chunks)
    return {}


def _add_biases(logits: Tensor, rows: list[int], chunks: Sequence[Chunk]) -> None:
    ids = [chunks[row].params.bias_ids for row in rows]
    values = _tensor([chunks[row].params.bias_values for row in rows], torch.float32, logits.device)
    _, places = _places(logits, rows, ids)
    logits.view(-1)[places] += values


def _penalize(logits: Tensor, penalized: list[tuple[int, TokenTally]], chunks: Sequence[Chunk]) -> None:
    """Repetition, frequency and presence penalties, as in vLLM and transformers."""
    rows = [row for row, _ in penalized]
    sizes, places = _places(logits, rows, [tally.ids.tobytes() for _, tally in penalized])
    counts = _tensor([tally.counts.tobytes() for _, tally in penalized], torch.float32, logits.device)
    params = [chunks[row].params for row in rows]
    penalties = [[one.repetition_penalty, one.frequency_penalty, one.presence_penalty] for one in params]
    repetition, frequency, presence = (
        torch.tensor(penalties, device=logits.device).repeat_interleave(sizes, dim=0).unbind(1)
    )
    flat = logits.view(-1)
    scores = flat[places]
    scores = torch.where(scores > 0, scores / repetition, scores * repetition)
    flat[places] = scores - counts * frequency - (counts > 0) * presence


def _constrain(logits: Tensor, rows: list[int], chunks: Sequence[Chunk]) -> dict[int, InferenceError]:
    vocab = logits.shape[-1]
    masked, forbidden = [], []
    errors: dict[int, InferenceError] = {}
    for row in rows:
        constraint = chunks[row].constraint
        assert constraint is not None
        try:
            bits = np.frombuffer(constraint.mask(), dtype=np.uint8)
            forbidden.append(np.unpackbits(bits, count=vocab, bitorder="little") == 0)
            masked.append(row)
        except Exception as error:  # a constraint runs code of a third party
            errors[row] = BackendError(f"the answer's constraint has failed: {error}")
            errors[row].__cause__ = error
    for row, mask in zip(masked, forbidden, strict=True):
        logits[row].masked_fill_(torch.from_numpy(mask).to(logits.device), -torch.inf)
    return errors


def _places(logits: Tensor, rows: list[int], packed: list[bytes]) -> tuple[Tensor, Tensor]:
    """The number of affected tokens of each row, and their offsets in the flattened logits."""
    sizes = torch.tensor([len(ids) // 8 for ids in packed], device=logits.device)
    begins = torch.tensor(rows, device=logits.device) * logits.shape[-1]
    return sizes, _tensor(packed, torch.int64, logits.device) + begins.repeat_interleave(sizes)


def _tensor(packed: list[bytes], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray().join(packed), dtype=dtype).to(device)
