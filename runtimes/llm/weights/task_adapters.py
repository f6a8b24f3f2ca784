"""The tasks of Jina v3 (Sturua et al. 2024, https://arxiv.org/abs/2409.10173): adapters of low rank in the model's own
files, one of which is added to the weights at load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from runtimes.llm.model.encoders.families import JINA, family_of
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.generation_config import json_file

if TYPE_CHECKING:
    from torch import Tensor

    from runtimes.llm.weights.tensor_files import TensorFiles

TaskName = Literal[
    "auto", "rerank", "retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"
]
_STORED = ".parametrizations.weight."


@dataclass(frozen=True, slots=True)
class TaskAdapter:
    """The adapter at `index` of each tensor, times `scale`. `prompt` precedes every text."""

    index: int
    scale: float
    prompt: str


def task_adapter(path: Path, task: TaskName) -> TaskAdapter | None:
    """None without a task. Raises UnsupportedModel for a task that the model has no adapter for."""
    if task in ("auto", "rerank"):
        return None
    raw = json_file(path / "config.json") if path.is_dir() else {}
    tasks = raw.get("lora_adaptations")
    if not isinstance(tasks, list) or task not in tasks or family_of(raw) != JINA:
        has = f"this one has {', '.join(map(str, tasks))}" if isinstance(tasks, list) else "this one has none"
        raise UnsupportedModel(f"task: {task} is for a model with an adapter of that name (Jina v3), and {has}")
    rank, alpha = raw.get("lora_rank"), raw.get("lora_alpha", 1)
    if not _is_number(rank) or not _is_number(alpha) or rank <= 0:
        raise UnsupportedModel(f"lora_rank {rank!r} and lora_alpha {alpha!r} are not the numbers of an adapter")
    prompts = raw.get("task_instructions")
    return TaskAdapter(tasks.index(task), alpha / rank, str(prompts.get(task, "")) if isinstance(prompts, dict) else "")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class TaskFiles:
    """Tensors under their plain names, with a task's adapter added to them."""

    def __init__(self, files: TensorFiles, adapter: TaskAdapter | None) -> None:
        self._files = files
        self._adapter = adapter
        self._stored = {name.replace(f"{_STORED}original", ".weight"): name for name in files if not _is_adapter(name)}

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def tensor(self, name: str) -> Tensor:
        stored = self._stored.get(name, name)
        weight = self._files.tensor(stored)
        if self._adapter is None or _STORED not in stored:
            return weight
        base = stored.removesuffix("original")
        first, second = (self._files.part(f"{base}0.lora_{part}", self._adapter.index) for part in ("A", "B"))
        # Of embeddings the first matrix has their rows; of other matrices it has their columns.
        rows, columns = (first, second) if "embeddings" in name else (second, first)
        if (rows.shape[0], columns.shape[-1]) != tuple(weight.shape) or rows.shape[-1] != columns.shape[0]:
            raise UnsupportedModel(f"the adapter {base}0 is of another shape than its tensor, {list(weight.shape)}")
        return weight.float() + rows.float() @ columns.float() * self._adapter.scale


def _is_adapter(name: str) -> bool:
    return f"{_STORED}0.lora_" in name
