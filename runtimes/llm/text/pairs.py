"""A query and a document as the tokens of one text, in the way of transformers' tokenizers.

A pair that is too long loses tokens of the longer text first (`longest_first`), as sentence-transformers' CrossEncoder
and vLLM cut it.
"""

from typing import NamedTuple

from tokenizers import Encoding

from runtimes.llm.text.tokenizer import Tokenizer, TooManyTokens

_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_BEGIN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
    ' provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class TextTokens(NamedTuple):
    """The tokens of a text or of a pair. The second text of a pair begins at `second_part`, if the model is told."""

    token_ids: list[int]
    second_part: int | None = None


class PairEncoder:
    """Pairs of texts for a model that reads both at once. `typed`: its tokens have the type of their text."""

    def __init__(self, tokenizer: Tokenizer, *, typed: bool = False) -> None:
        self._tokenizer = tokenizer
        self._typed = typed
        self._added = tokenizer.added_to_pairs

    def row(self, query: Encoding, document: str, longest: int, *, cut: bool) -> TextTokens:
        """The tokens of an encoded query and a document, `longest` at most. Raises TooManyTokens unless longer ones are
        `cut`."""
        first, second = query, self._tokenizer.plain(document)
        room = max(longest - self._added, 0)
        if len(first.ids) + len(second.ids) > room:
            if not cut:
                raise TooManyTokens(f"more than {longest} tokens")
            lengths = _longest_first(len(first.ids), len(second.ids), room)
            first = Encoding.merge([first])  # a copy, because the library truncates in place
            first.truncate(lengths[0])
            second.truncate(lengths[1])
        joined = self._tokenizer.joined(first, second)
        return TextTokens(joined.ids, joined.type_ids.index(1) if self._typed and 1 in joined.type_ids else None)

    def query(self, text: str) -> Encoding:
        return self._tokenizer.plain(text)


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The tokens that remain of both texts, as in the library (tokenizers/src/utils/truncation.rs)."""
    small = min(first, second)
    large = small if small > room else max(small, room - small)
    if small + large > room:
        small = room // 2
        large = small + room % 2
    return (large, small) if first > second else (small, large)


class YesNoPrompt:
    """The prompt of Qwen 3 Reranker, as on its card (https://huggingface.co/Qwen/Qwen3-Reranker-0.6B).

    A control token that a query or a document spells is plain text here, so that no document ends its own prompt.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._begin = tokenizer.encode(_BEGIN, allow_special=True)
        self._end = tokenizer.encode(_END, allow_special=True)

    def row(self, query: str, document: str, instruction: str | None, longest: int, *, cut: bool) -> TextTokens:
        """As `PairEncoder.row`; the end of a longer document is cut."""
        text = f"<Instruct>: {instruction or _INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
        ids = self._tokenizer.encode(text)
        room = max(longest - len(self._begin) - len(self._end), 0)
        if len(ids) > room and not cut:
            raise TooManyTokens(f"more than {longest} tokens")
        return TextTokens([*self._begin, *ids[:room], *self._end])
