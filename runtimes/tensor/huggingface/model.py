"""A loaded pipeline as a model: rows that are refused alone, and rows that share a batch of the network.

Rows beside each other are padded, and some networks answer otherwise then. So the first examples are computed alone and
together at load. Rows share a batch as they are, or only those of one size, or none.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from adapters.errors import CallerError
from runtimes.tensor.huggingface.rows import PipelineTask
from runtimes.tensor.huggingface.tensors import JSON
from runtimes.tensor.interfaces import Array, InvalidRow, ModelLoadError, Tensors

PADDED, ALIKE, ALONE = "padded", "alike", "alone"
TOLERANCE: Final = 1e-5
"""The largest difference of a number together and alone; of numbers above 1 in relation to the largest."""
MAX_HELD: Final = 192 << 20
"""Bytes of decoded pictures and sound that wait for each other."""
log = logging.getLogger(__name__)


class PipelineModel:
    """Computes the rows of a batch. `sharing` is the rule by which they share a batch of the network."""

    def __init__(self, task: PipelineTask, name: str, *, is_tried: bool) -> None:
        """Raises `ModelLoadError` if the pipeline does not answer its examples."""
        self._task = task
        self.sharing = self._tried(name) if is_tried else ALONE

    def infer(self, inputs: Tensors) -> Any:
        """The outputs, beside the rows that are refused."""
        count = len(next(iter(inputs.values()))) if inputs else 1
        rows: list[Mapping[str, Any] | None] = [None] * count
        errors: dict[int, InvalidRow] = {}
        waiting: dict[int, Any] = {}
        held = 0
        for row in range(count):
            try:
                waiting[row] = item = self._task.read(inputs, row)
            except CallerError as error:
                errors[row] = InvalidRow(error.message)
                continue
            held += self._task.cost(item)
            if held > MAX_HELD:
                self._compute(waiting, rows)
                waiting, held = {}, 0
        self._compute(waiting, rows)
        outputs = self._task.outputs(rows)
        return (outputs, errors) if errors else outputs

    def close(self) -> None:
        del self._task

    def _compute(self, items: Mapping[int, Any], rows: list[Mapping[str, Any] | None]) -> None:
        if items:
            answers = self._answers(list(items.values()), self.sharing)
            for row, answer in zip(items, answers, strict=True):
                rows[row] = answer

    def _answers(self, items: Sequence[Any], sharing: str) -> list[Mapping[str, Any]]:
        """The values of items in their order."""
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            groups[{PADDED: 0, ALIKE: self._task.size(item)}.get(sharing, at)].append(at)
        answers: dict[int, Mapping[str, Any]] = {}
        for places in groups.values():
            results = self._task.compute([items[at] for at in places], together=len(places) > 1)
            answers |= {at: self._task.values(result) for at, result in zip(places, results, strict=True)}
        return [answers[at] for at in range(len(items))]

    def _tried(self, name: str) -> str:
        examples = self._task.examples
        items = [*examples, examples[0]]  # two are of one size
        try:
            alone = self._task.outputs(self._answers(items, ALONE))
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise ModelLoadError(f"the pipeline cannot answer a made-up request ({reason})") from error
        for sharing in (PADDED, ALIKE):
            try:
                together = self._task.outputs(self._answers(items, sharing))
            except Exception as error:
                log.warning("%s: rows do not share a batch (%s: %s)", name, type(error).__name__, str(error)[:200])
                continue
            if _equal(alone, together):
                return sharing
            log.warning("%s: %s rows differ together and alone", name, sharing)
        return ALONE


def _equal(alone: Mapping[str, Array], together: Mapping[str, Array]) -> bool:
    for name, expected in alone.items():
        got = together[name]
        if name == JSON.name:
            continue  # its numbers are in the other outputs
        if expected.shape != got.shape:
            return False
        if expected.dtype.kind != "f":
            if not np.array_equal(expected, got):
                return False
            continue
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
        if not np.allclose(expected, got, rtol=0, atol=TOLERANCE * largest, equal_nan=True):
            return False
    return True
