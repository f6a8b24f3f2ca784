"""The ranks of a model as threads of one process, which add and join their parts through shared memory."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from runtimes.llm.model.llama import Llama
from runtimes.llm.model.split import ModelSplit
from runtimes.llm.weights.loader import load_model, open_checkpoint

T = TypeVar("T")


class _Meeting:
    """Where all ranks put a part, and each reads all parts."""

    def __init__(self, size: int) -> None:
        self._parts: list[Any] = [None] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def exchanged(self, rank: int, part: Tensor) -> list[Tensor]:
        self._parts[rank] = part
        self._barrier.wait()
        parts = list(self._parts)
        self._barrier.wait()
        return parts

    def end(self) -> None:
        self._barrier.abort()


class _Thread:
    """A rank of a `Meeting`."""

    def __init__(self, split: ModelSplit, meeting: _Meeting) -> None:
        self.split = split
        self._meeting = meeting

    def summed(self, part: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchanged(self.split.rank, part)).sum(dim=0)

    def joined(self, part: Tensor) -> Tensor:
        return torch.cat(self._meeting.exchanged(self.split.rank, part), dim=-1)


def split_model(path: Path, size: int, **how: Any) -> list[Llama]:
    """The parts of the model at `path`, of rank 0 first."""
    meeting, whole = _Meeting(size), open_checkpoint(path).config
    how = {"dtype": "float32", "device": "cpu"} | how
    return [load_model(path, ranks=_Thread(ModelSplit.of(whole, rank, size), meeting), **how) for rank in range(size)]


def in_all(models: list[Llama], compute: Callable[[Llama], T]) -> T:
    """What `compute` returns in rank 0, while it runs in every rank."""

    def run(model: Llama) -> T:
        try:
            return compute(model)
        except BaseException:
            ranks: Any = model.ranks
            ranks._meeting.end()  # the others would wait
            raise

    with ThreadPoolExecutor(len(models)) as threads:
        first, *_ = threads.map(run, models)
    return first
