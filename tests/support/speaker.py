"""A model that is a table of logits: it speaks a text, and the log probability of each token is known."""

import math
from collections.abc import Sequence

import torch

from runtimes.llm.sequence import Chunk
from tests.runtimes.llm.server_fixtures import TEXT
from tests.support.byte_tokenizer import byte_tokenizer

PROMPT = "abc"
END = 257
[BROKEN] = byte_tokenizer().encode("!")


class Speaker:
    """An executor whose logits depend on the position only: chance, and more for the token of `text` there after a
    prompt of `after` tokens. A prompt that begins with BROKEN gets NaN."""

    def __init__(self, text: str, after: int) -> None:
        self.script = [*byte_tokenizer().encode(text), *[END] * 300]
        self.after = after
        self.broken: set[int] = set()

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> torch.Tensor:
        self.broken |= {chunk.sequence_id for chunk in chunks if chunk.start == 0 and chunk.token_ids[0] == BROKEN}
        places = [(chunk, place) for chunk in chunks for place in range(chunk.start + 1, chunk.end + 1)]
        placed = [places[row] for row in rows]
        return torch.stack(
            [torch.empty(258), *[self.row(place, chunk.sequence_id in self.broken) for chunk, place in placed]]
        )[1:]

    def hidden(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        raise NotImplementedError

    def row(self, place: int, broken: bool = False) -> torch.Tensor:
        """The logits of the token at `place`."""
        logits = torch.randn(258, generator=torch.Generator().manual_seed(place))
        if place >= self.after:
            logits[self.script[place - self.after]] += 6
        return logits * math.nan if broken else logits

    def logprob(self, place: int, token: int) -> float:
        return float(self.row(place).log_softmax(-1)[token])

    def likeliest(self, place: int, count: int) -> list[int]:
        ids: list[int] = self.row(place).topk(count).indices.tolist()
        return ids


SPEAKER = Speaker(TEXT, after=len(PROMPT))
