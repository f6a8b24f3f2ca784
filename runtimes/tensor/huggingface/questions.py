"""Answers to questions, as spans of a context.

`transformers` 5 has no pipeline for them. This is the rule of those before: a long context is read in windows that
overlap, a span's score is the product of the shares of its first and last token, and the best span wins (Devlin et al.
2018, BERT, https://arxiv.org/abs/1810.04805, section 4.2).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from adapters.errors import CallerError, ContextTooLong
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.rows import column, json_of, named, text_of
from runtimes.tensor.huggingface.texts import EXAMPLES, TextTask
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

WINDOW: Final = 384
"""Tokens of a window, the question included."""
_LONGEST: Final = 15
"""Tokens of an answer."""
_OVERLAP: Final = 128
"""Tokens that a window shares with the one before, and a quarter of a small window."""
_WINDOWS: Final = 32
"""Windows of one batch of the network. A context of a mebibyte has thousands."""


class _Question(NamedTuple):
    question: str
    context: str


class QuestionAnswering(TextTask):
    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        if not pipe.tokenizer.is_fast:
            raise ModelLoadError("the tokenizer does not have the places of its tokens: save it as tokenizer.json")
        self._window = min(WINDOW, self.limit)

    @property
    def examples(self) -> Sequence[Any]:
        return [_Question(EXAMPLES[0], text) for text in EXAMPLES]

    def read(self, inputs: Tensors, row: int) -> Any:
        item = _Question(text_of(inputs, "question", row), text_of(inputs, "context", row))
        if not item.question.strip():
            raise CallerError("`question` is empty: send a question.", param="question")
        if not self.pipe.tokenizer(item.context, add_special_tokens=False, verbose=False)["input_ids"]:
            raise CallerError("`context` has no tokens: send the text with the answer.", param="context")
        if (tokens := len(self.ids(item.question, ""))) > self._window // 2:
            message = f"`question` has {tokens} tokens, and {self._window // 2} is the most."
            raise ContextTooLong(message, param="question")
        return item

    def size(self, item: Any) -> Hashable:
        return len(self.ids(item.question, item.context))

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        return [self._answer(item) for item in items] if not together else self._answers(items)

    def _answer(self, item: _Question) -> dict[str, Any]:
        (answer,) = self._answers([item])
        return answer

    def _answers(self, items: Sequence[_Question]) -> list[dict[str, Any]]:
        """The best span of each item. The windows of all items share batches of the network."""
        encoded = self.pipe.tokenizer(
            [item.question for item in items],
            [item.context for item in items],
            truncation="only_second",
            max_length=self._window,
            stride=min(_OVERLAP, self._window // 4),  # the same alone and beside others
            return_overflowing_tokens=True,
            padding=len(items) > 1 or self.pipe.tokenizer.pad_token is not None,
            return_tensors="pt",
        )
        owners = encoded.pop("overflow_to_sample_mapping").tolist()
        logits = self._logits(encoded, len(owners))
        best: list[dict[str, Any]] = [{} for _ in items]
        for window, owner in enumerate(owners):
            starts, ends = logits[window]
            places = np.array([one == 1 for one in encoded.sequence_ids(window)])
            heads = encoded["input_ids"][window].numpy() == self.pipe.tokenizer.cls_token_id
            score, first, last = _span(starts, ends, places, heads)
            if score > best[owner].get("score", -1.0):
                start, end = _characters(encoded, window, first, last)
                answer = items[owner].context[start:end]
                best[owner] = {"score": score, "start": start, "end": end, "answer": answer}
        return best

    def _logits(self, encoded: Any, windows: int) -> list[tuple[Array, Array]]:
        """The logits of the first and of the last token of an answer, by window."""
        made: list[tuple[Array, Array]] = []
        for at in range(0, windows, _WINDOWS):
            answer = self.pipe.forward({name: tensor[at : at + _WINDOWS] for name, tensor in encoded.items()})
            starts, ends = (answer[name].float().numpy() for name in ("start_logits", "end_logits"))
            made += zip(starts, ends, strict=True)
        return made

    def values(self, result: Any) -> Mapping[str, Any]:
        return {"output": json_of(result), **result}

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        kinds = {"output": object, "answer": object, "score": np.float32, "start": np.int32, "end": np.int32}
        return {name: column(named(rows, name), kind) for name, kind in kinds.items()}


def _span(starts: Array, ends: Array, places: Array, heads: Array) -> tuple[float, int, int]:
    """The score of the best span, and its first and last token. `places` are the tokens of the context; those of
    `heads` have a share, which stands for no answer, and are in no span."""
    first, last = (_shares(one, places | heads) * places for one in (starts, ends))
    products = np.triu(np.tril(np.outer(first, last), _LONGEST - 1))
    begin, end = divmod(int(products.argmax()), len(last))
    return float(products[begin, end]), begin, end


def _shares(logits: Array, places: Array) -> Array:
    """The softmax over some tokens; 0 for the others."""
    own = np.where(places, logits.astype(np.float64), -np.inf)
    powers = np.exp(own - own.max())
    shares: Array = powers / powers.sum()
    return shares


def _characters(encoded: Any, window: int, first: int, last: int) -> tuple[int, int]:
    """The characters of the context that the words of two tokens begin and end with."""
    words = [encoded.token_to_word(window, token) for token in (first, last)]
    if None in words:
        return encoded.token_to_chars(window, first)[0], encoded.token_to_chars(window, last)[1]
    begin, end = (encoded.word_to_chars(window, word, sequence_index=1) for word in words)
    return begin[0], end[1]
