"""Whether two tokenizers give the same ids to the same tokens, as a draft model requires."""

from runtimes.llm.text.tokenizer import Tokenizer

MOST_MISSING = 128
"""Ids that only one of the vocabularies may have, as in llama.cpp (SPEC_VOCAB_MAX_SIZE_DIFFERENCE of
common/speculative.cpp): models of one family differ in some control tokens at the end."""


def difference(first: Tokenizer, second: Tokenizer) -> str | None:
    """The first difference, for people; None if the ids mean the same. How texts are cut does not matter."""
    one, other = _spellings(first), _spellings(second)
    for token_id in sorted(one.keys() & other.keys()):
        if one[token_id] != other[token_id]:
            return f"token {token_id} is {_shown(other[token_id])} there and {_shown(one[token_id])} here"
    if len(one.keys() ^ other.keys()) > MOST_MISSING:
        return f"its vocabulary has {len(other)} tokens, and this one {len(one)}"
    return None


def _spellings(tokenizer: Tokenizer) -> dict[int, bytes]:
    return tokenizer.pieces | tokenizer.special_spellings


def _shown(piece: bytes) -> str:
    return repr(piece.decode("utf-8", "backslashreplace"))
