"""The shape of the heads of attention in tests, and the chunks of its steps."""

import torch

from runtimes.llm.sequence import Chunk, SamplingParams

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8
CPU = torch.device("cpu")


def make_chunk(identity: int, start: int, count: int, pages: list[int]) -> Chunk:
    return Chunk(
        sequence_id=identity,
        start=start,
        token_ids=(0,) * count,
        block_table=tuple(pages),
        samples=True,
        params=SamplingParams(max_tokens=1),
        seed=0,
    )
