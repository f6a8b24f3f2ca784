"""Tasks of texts: classification of texts and of tokens, masks, and features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from adapters.errors import CallerError, ContextTooLong
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.rows import PipelineTask, column, json_of, named, ragged, text_of
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

EXAMPLES: Final = ("one", "a longer text with some more words", "12 numbers, and 3 signs!")
UNKNOWN_LIMIT: Final = 4096
"""The longest text in tokens, of a model that does not have its own limit."""


def limit_of(pipe: Any, settings: PipelineSettings) -> int:
    """The longest text of a model in tokens, those that the tokenizer adds included. Raises `ModelLoadError`."""
    own = [pipe.tokenizer.model_max_length]
    sizes = pipe.model.config
    positions = next((n for key in ("max_position_embeddings", "n_positions") if (n := getattr(sizes, key, None))), 0)
    if positions:
        own.append(positions - _offset(pipe.model))
    limit = min(own)
    limit = limit if 0 < limit < 1 << 20 else UNKNOWN_LIMIT
    if settings.max_tokens > limit:
        raise ModelLoadError(f"parameter `max_tokens` is {settings.max_tokens}, and the model takes {limit} at most")
    return settings.max_tokens or limit


def _offset(model: Any) -> int:
    """The positions that no token has: RoBERTa and its kin count from behind the number of the padding."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings"):
            padding = getattr(module, "padding_idx", None)
            return 0 if padding is None else padding + 1
    return 0


class TextTask(PipelineTask):
    """A task with a text in each row, whose tokens have a limit."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self.limit = limit_of(pipe, settings)
        self.cuts = settings.too_long == "cut"
        # Where pipelines cut on their own, nothing is left to cut unless it is wanted.
        pipe.tokenizer.model_max_length = self.limit

    @property
    def examples(self) -> Sequence[Any]:
        return [(text, False) for text in EXAMPLES]

    def read(self, inputs: Tensors, row: int) -> Any:
        text = text_of(inputs, "args", row)
        return text, self.fitted(text)

    def fitted(self, text: str, pair: str | None = None) -> bool:
        """Whether the text must be cut. Raises `CallerError` if it cannot be, and for a text without tokens."""
        tokens = len(self.ids(text, pair))
        if not tokens:
            raise CallerError("`args` has no tokens: send a text.", param="args")
        if tokens <= self.limit:
            return False
        if not self.cuts:
            raise ContextTooLong(f"`args` has {tokens} tokens, and {self.limit} is the most.", param="args")
        return True

    def ids(self, text: str, pair: str | None = None) -> list[int]:
        """All tokens of a text, those that the tokenizer adds included."""
        ids: list[int] = self.pipe.tokenizer(text, pair, truncation=False, verbose=False)["input_ids"]
        return ids

    def size(self, item: Any) -> Hashable:
        return min(len(self.ids(item[0])), self.limit)

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        results = self.results([text for text, _ in items], together=together)
        return [(result, truncated) for result, (_, truncated) in zip(results, items, strict=True)]

    def results(self, texts: list[Any], *, together: bool) -> list[Any]:
        return super().compute(texts, together=together)

    def with_truncated(self, outputs: dict[str, Array], rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        """The outputs, with the report of texts that were cut if they may be."""
        if self.cuts:
            outputs["truncated"] = column(named(rows, "truncated"), np.bool_)
        return outputs


class Scores:
    """The scores of all classes in the order of the model. Names may be alike, so the pipeline has numbers instead."""

    def __init__(self, pipe: Any) -> None:
        self.names = [str(name) for _, name in sorted(pipe.model.config.id2label.items())]
        pipe.model.config.id2label = {number: str(number) for number in range(len(self.names))}

    def values(self, result: Sequence[Mapping[str, Any]], top: int | None) -> dict[str, Any]:
        """The outputs of a row, whose JSON has a list of the `top` classes, or the best alone for None."""
        scores = np.zeros(len(self.names), np.float32)
        for one in result:
            scores[int(one["label"])] = one["score"]
        best = [{"label": self.names[int(one["label"])], "score": one["score"]} for one in result[: top or 1]]
        shown = best[0] if top is None else best
        return {"output": json_of(shown), "label": best[0]["label"], "score": best[0]["score"], "scores": scores}

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        empty = np.zeros(len(self.names), np.float32)
        return {
            "output": column(named(rows, "output"), object),
            "label": column(named(rows, "label"), object),
            "score": column(named(rows, "score"), np.float32),
            "scores": np.stack([empty if row is None else row["scores"] for row in rows]),
        }


class TextClassification(TextTask):
    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self._scores = Scores(pipe)

    @property
    def examples(self) -> Sequence[Any]:
        if not self.settings.pairs:
            return super().examples
        return [({"text": text, "text_pair": EXAMPLES[0]}, False) for text in EXAMPLES]

    def read(self, inputs: Tensors, row: int) -> Any:
        text = text_of(inputs, "args", row)
        pair = text_of(inputs, "text_pair", row) if self.settings.pairs else None
        truncated = self.fitted(text, pair)
        return (text if pair is None else {"text": text, "text_pair": pair}), truncated

    def size(self, item: Any) -> Hashable:
        text = item[0]
        return len(self.ids(text) if isinstance(text, str) else self.ids(text["text"], text["text_pair"]))

    def results(self, texts: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        cut = {"truncation": True, "max_length": self.limit} if self.cuts else {}
        size = len(texts) if together else 1
        results: list[Any] = Pipeline.__call__(self.pipe, texts, batch_size=size, top_k=None, **cut)
        return results

    def values(self, result: Any) -> Mapping[str, Any]:
        return {**self._scores.values(result[0], None), "truncated": result[1]}

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        return self.with_truncated(self._scores.outputs(rows), rows)


class TokenClassification(TextTask):
    """Entities, or tokens unless they are aggregated. Labels that the pipeline leaves out (`O`) are left out."""

    def values(self, result: Any) -> Mapping[str, Any]:
        answer, truncated = result
        entities = [{key: _plain(value) for key, value in one.items()} for one in answer]
        return {
            "output": json_of(entities),
            "labels": [one.get("entity_group", one.get("entity")) for one in entities],
            "scores": [one["score"] for one in entities],
            "words": [one["word"] for one in entities],
            "start": [-1 if one["start"] is None else one["start"] for one in entities],
            "end": [-1 if one["end"] is None else one["end"] for one in entities],
            "truncated": truncated,
        }

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        kinds = {"labels": object, "scores": np.float32, "words": object, "start": np.int32, "end": np.int32}
        made = {name: ragged(named(rows, name), kind) for name, kind in kinds.items()}
        made["output"] = column(named(rows, "output"), object)
        made["count"] = column([len(row or ()) for row in named(rows, "labels")], np.int32)
        return self.with_truncated(made, rows)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class FillMask(TextTask):
    """The likeliest tokens for each mask of a text."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self._most = min(settings.top_k, pipe.model.config.vocab_size)
        self._mask = pipe.tokenizer.mask_token

    @property
    def examples(self) -> Sequence[Any]:
        return [(f"{text} {self._mask}", False) for text in EXAMPLES]

    def read(self, inputs: Tensors, row: int) -> Any:
        text, truncated = super().read(inputs, row)
        if self.pipe.tokenizer.mask_token_id not in self.ids(text)[: self.limit - 1 if truncated else None]:
            raise CallerError(f"`args` has no mask, which is written {self._mask}.", param="args")
        return text, truncated

    def results(self, texts: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        cut = {"tokenizer_kwargs": {"truncation": True, "max_length": self.limit}} if self.cuts else {}
        size = len(texts) if together else 1
        results: list[Any] = Pipeline.__call__(self.pipe, texts, batch_size=size, top_k=self._most, **cut)
        return results

    def values(self, result: Any) -> Mapping[str, Any]:
        answer, truncated = result
        masks = [answer] if isinstance(answer[0], dict) else answer
        return {
            "output": json_of(answer),
            "tokens": [[one["token_str"] for one in mask] for mask in masks],
            "scores": [[one["score"] for one in mask] for mask in masks],
            "truncated": truncated,
        }

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        return self.with_truncated(
            {
                "output": column(named(rows, "output"), object),
                "tokens": ragged(named(rows, "tokens"), object, (self._most,)),
                "scores": ragged(named(rows, "scores"), np.float32, (self._most,)),
                "count": column([len(row or ()) for row in named(rows, "scores")], np.int32),
            },
            rows,
        )


class FeatureExtraction(TextTask):
    """The last states of the network: of each token, or pooled."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self._pooling = settings.pooling

    def results(self, texts: list[Any], *, together: bool) -> list[Any]:
        import torch

        encoded = self.pipe.tokenizer(
            texts, padding=together, truncation=self.cuts, max_length=self.limit, return_tensors="pt"
        )
        masks = encoded.get("attention_mask", torch.ones_like(encoded["input_ids"])).bool()
        states = self.pipe.forward(dict(encoded))[0].float()
        return [self._pooled(one[mask.to(one.device)].numpy()) for one, mask in zip(states, masks, strict=True)]

    def _pooled(self, states: Array) -> Array:
        """The states of the tokens of a text, [tokens, width], or their vector."""
        if self._pooling == "none":
            return states
        pooled: Array = states.mean(axis=0) if self._pooling == "mean" else states[0]
        return pooled

    def values(self, result: Any) -> Mapping[str, Any]:
        return {"features": result[0], "truncated": result[1]}

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        width = self.pipe.model.config.hidden_size
        features = named(rows, "features")
        if self._pooling != "none":
            empty = np.zeros(width, np.float32)
            return self.with_truncated(
                {"embedding": np.stack([empty if one is None else one for one in features])}, rows
            )
        made = {
            "features": ragged(features, np.float32, (width,)),
            "count": column([0 if one is None else len(one) for one in features], np.int32),
        }
        return self.with_truncated(made, rows)
