"""Log-probabilities in the shapes of OpenAI's APIs: a chat's as a list of tokens, a completion's as four lists."""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from runtimes.llm.sequence import TokenLogprobs
from runtimes.llm.text.tokenizer import Tokenizer

ScoredPrompt = list[dict[str, dict[str, Any]] | None]


class ScoredToken(NamedTuple):
    """One token of an answer, or of its prompt, where `logprob` is None for the first.

    `offset` is its offset in the text: for a part of a character, that of the character.
    """

    token_id: int
    offset: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, token_id: int, offset: int, logprobs: TokenLogprobs | None) -> "ScoredToken":
        if logprobs is None:
            return cls(token_id, offset, None, ())
        return cls(token_id, offset, logprobs.logprob, logprobs.top)


class TokenNames:
    """The names of single tokens: their text, the name of a control token, and the bytes of an incomplete character.

    `prefix` precedes bytes.
    """

    def __init__(self, tokenizer: Tokenizer, prefix: str = "") -> None:
        self._pieces = tokenizer.pieces
        self._spellings = {token_id: spelling for spelling, token_id in tokenizer.special_tokens.items()}
        self._prefix = prefix

    def name(self, token_id: int) -> str:
        piece = self._pieces.get(token_id, b"")
        try:
            return piece.decode() or self._spellings.get(token_id, "")
        except UnicodeDecodeError:
            return self._prefix + "".join([f"\\x{byte:02x}" for byte in piece])

    def bytes(self, token_id: int) -> list[int] | None:
        """The text that it adds; None for a control token, which adds nothing."""
        return list(self._pieces.get(token_id, b"")) or None


def chat_logprobs(tokens: Sequence[ScoredToken], names: TokenNames) -> dict[str, Any]:
    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        return {"token": names.name(token_id), "logprob": logprob, "bytes": names.bytes(token_id)}

    content = [
        entry(token.token_id, token.logprob) | {"top_logprobs": [entry(*other) for other in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[ScoredToken], names: TokenNames) -> dict[str, Any]:
    """Log-probabilities of a completion.

    `top_logprobs` always contains the token itself, in addition to the likeliest ones.
    """

    def likeliest(token: ScoredToken) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        # Of several tokens with one name, the likeliest counts.
        named: dict[str, float] = {}
        for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
            named.setdefault(names.name(token_id), logprob)
        return named

    return {
        "tokens": [names.name(token.token_id) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [likeliest(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def scored_prompt(
    token_ids: Sequence[int], scores: Sequence[TokenLogprobs], count: int, names: TokenNames
) -> ScoredPrompt:
    """vLLM's `prompt_logprobs`: for each token the `count` likeliest and the token itself, by id.

    None for the first.
    """
    scored: ScoredPrompt = [None]
    for token_id, score in zip(token_ids[1:], scores, strict=True):
        ranked = [(other, logprob, rank) for rank, (other, logprob) in enumerate(score.top[:count], 1)]
        scored.append({
            str(other): {"logprob": logprob, "rank": rank, "decoded_token": names.name(other)}
            for other, logprob, rank in ((token_id, score.logprob, score.rank), *ranked)
        })  # fmt: skip
    return scored


class EchoedPrompt:
    """A prompt as the beginning of an answer: its `text`, and the offset of each token in it.

    A token that is not in the text, such as the beginning-of-text token, has offset 0.
    """

    def __init__(self, token_ids: Sequence[int], tokenizer: Tokenizer, written: str | None) -> None:
        names, decoder = TokenNames(tokenizer), codecs.getincrementaldecoder("utf-8")("replace")
        texts = []
        self.offsets = []
        so_far = 0
        for token_id in token_ids:
            self.offsets.append(so_far)
            texts.append(decoder.decode(tokenizer.piece(token_id) or names.name(token_id).encode()))
            so_far += len(texts[-1])
        spelled = "".join(texts) + decoder.decode(b"", final=True)
        self.text = spelled if written is None else written
        unwritten = max(len(spelled) - len(self.text), 0)
        self.offsets = [max(offset - unwritten, 0) for offset in self.offsets]
        self.token_ids = token_ids

    def scored_tokens(self, logprobs: Iterable[TokenLogprobs], count: int) -> list[ScoredToken]:
        """`logprobs` begin with the second token. The likeliest `count` of each are reported."""
        scores = (None, *[score._replace(top=score.top[:count]) for score in logprobs])
        rows = zip(self.token_ids, self.offsets, scores, strict=True)
        return [ScoredToken.of(*row) for row in rows]
