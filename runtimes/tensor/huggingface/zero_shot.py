"""Classification without training: the labels are those of the request."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from adapters.errors import CallerError
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.rows import column, json_of, named, ragged, text_of
from runtimes.tensor.huggingface.texts import EXAMPLES, TextTask
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

MAX_LABELS: Final = 256
_LABELS: Final = ("one", "something else")


class ZeroShot(TextTask):
    """A text, and the labels that it may have: a model that was trained on entailment judges each of them."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        if pipe.entailment_id == -1:
            raise ModelLoadError("no class of the model is called entailment, which zero-shot classification needs")

    @property
    def examples(self) -> Sequence[Any]:
        return [((text, _LABELS), False) for text in EXAMPLES]

    def read(self, inputs: Tensors, row: int) -> Any:
        text = text_of(inputs, "args", row)
        # An empty text has no tokens of its own, and a pair has some of its label.
        labels = tuple(self._label(one) for one in inputs["candidate_labels"][row])
        if not 0 < len(labels) <= MAX_LABELS:
            raise CallerError(
                f"send 1 to {MAX_LABELS} `candidate_labels`, not {len(labels)}.", param="candidate_labels"
            )
        if not text:
            raise CallerError("`args` is empty: send a text.", param="args")
        # The pipeline cuts a text that is too long beside any of its labels, and does not report it.
        longest = max((self._hypothesis(label) for label in labels), key=lambda one: len(self.ids(one)))
        return (text, labels), self.fitted(text, longest)

    def _hypothesis(self, label: str) -> str:
        return self.settings.hypothesis_template.replace("{}", label)

    def _label(self, content: bytes) -> str:
        try:
            label = str(content, "utf-8")
        except UnicodeDecodeError:
            raise CallerError("`candidate_labels` has a label that is not UTF-8.", param="candidate_labels") from None
        if not label.strip():
            raise CallerError("`candidate_labels` has an empty label.", param="candidate_labels")
        if len(self.ids(label)) > self.limit // 2:
            raise CallerError("`candidate_labels` has a label that is too long.", param="candidate_labels")
        return label

    def size(self, item: Any) -> Hashable:
        text, labels = item[0]
        return labels, tuple(len(self.ids(text, self._hypothesis(label))) for label in labels)

    def results(self, texts: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        made: dict[int, Any] = {}
        for labels in {labels for _, labels in texts}:
            places = [at for at, (_, own) in enumerate(texts) if own == labels]
            results = Pipeline.__call__(
                self.pipe,
                [texts[at][0] for at in places],
                batch_size=min(len(places) * len(labels), 32) if together else 1,
                candidate_labels=list(labels),
                hypothesis_template=self.settings.hypothesis_template,
                multi_label=self.settings.multi_label,
            )
            made |= dict(zip(places, results, strict=True))
        return [made[at] for at in range(len(texts))]

    def values(self, result: Any) -> Mapping[str, Any]:
        answer, truncated = result
        return {
            "output": json_of(answer),
            "labels": answer["labels"],
            "scores": answer["scores"],
            "truncated": truncated,
        }

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        made = {
            "output": column(named(rows, "output"), object),
            "labels": ragged(named(rows, "labels"), object),
            "scores": ragged(named(rows, "scores"), np.float32),
        }
        return self.with_truncated(made, rows)
