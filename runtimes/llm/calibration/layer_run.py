"""The layers of a model one after the other, over all calibration texts, and what each matrix multiplies there.

Only one layer's weights are in memory, in float32, and the states of all tokens between two layers.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.attention import Attention, KVCache
from runtimes.llm.model.layers import Layer, read_layer
from runtimes.llm.model.llama import Llama, Turn
from runtimes.llm.model.lora import AdaptedRows
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.model.recurrent.states import Recurrence
from runtimes.llm.model.short_conv import Recent
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk
from runtimes.llm.sequence import Sequence as TokenSequence
from runtimes.llm.weights.loader import check_weight
from runtimes.llm.weights.safetensors_files import SafetensorsCheckpoint
from runtimes.llm.weights.tensor_files import TensorFiles

_BLOCK = 16
"""Tokens of a page of the executor's cache."""


@dataclass(slots=True)
class Inputs:
    """The rows x that a matrix multiplies: `gram` [in, in] is the sum of x xᵀ, `magnitude` [in] that of |x|."""

    gram: Tensor
    magnitude: Tensor
    count: int

    def add(self, rows: Tensor) -> None:
        self.gram.addmm_(rows.t(), rows)
        self.magnitude += rows.abs().sum(0)
        self.count += len(rows)


class ReplacedFiles(TensorFiles):
    """A folder's tensors, some of which are `replaced`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.replaced: dict[str, Tensor] = {}

    def tensor(self, name: str) -> Tensor:
        return self.replaced[name] if name in self.replaced else super().tensor(name)


class LayerRun:
    """`texts` are of two tokens or more. Raises UnsupportedModel for a model that the engine cannot compute."""

    def __init__(self, source: Path, texts: Sequence[Sequence[int]]) -> None:
        self.files = ReplacedFiles(source)
        self.checkpoint = SafetensorsCheckpoint(source, self.files)
        if (part := self.checkpoint.config.across_layers) is not None:
            raise UnsupportedModel(
                f"calibration computes one layer after the other, and {source.name} has {part}: use --method rtn"
            )
        self._model = _OneLayer(self.checkpoint.config, self._outside)
        longest = max(map(len, texts))
        self._executor = TorchExecutor(self._model, -(-longest // _BLOCK), _BLOCK, context_length=longest)
        self._chunks = [_chunk(text) for text in texts]
        self._states: list[Tensor] | list[None] = [None] * len(texts)

    @property
    def layers(self) -> int:
        return self.checkpoint.config.num_layers

    def observed(self, index: int, matrices: Collection[str]) -> "ObservedLayer":
        """Run the layer `index` without a change of the states; its `matrices` are names in the files."""
        marks, names = self._marked(index)
        layer = self._read(index)
        stored = {name: self.checkpoint.stored_name(name) for name in names}
        numbers = {number for number, name in enumerate(names) if stored[name] in matrices}
        watch = _Watch({matrix.untyped_storage().data_ptr(): mark for matrix, mark in _matrices(layer, marks)}, numbers)
        with watch:
            self._run(index, layer)
        inputs = {stored[names[number]]: seen for key, seen in watch.inputs.items() for number in key}
        return ObservedLayer(frozenset(stored.values()), inputs)

    def advance(self, index: int) -> None:
        """Replace all states by what the layer `index` makes of them."""
        self._states = self._run(index, self._read(index))

    def _run(self, index: int, layer: Layer) -> list[Tensor]:
        model, outputs = self._model, []
        model.index, model.layer = index, layer
        for chunk, entering in zip(self._chunks, self._states, strict=True):
            model.entering = entering
            outputs.append(self._executor.hidden([chunk]))
        model.layer = None
        return outputs

    def _read(self, index: int) -> Layer:
        def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
            weight = self.checkpoint.tensor(name)
            check_weight(self.checkpoint.stored_name(name), weight, shape)
            return weight.to(torch.float32, copy=True)  # so that no two matrices share their memory

        return read_layer(self.checkpoint.config, tensor, index, torch.float32)

    def _marked(self, index: int) -> tuple[Layer, list[str]]:
        """The layer with each tensor's number in place of its weights, and their names: which rows of a matrix
        are whose."""
        names: list[str] = []

        def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
            names.append(name)
            return torch.full(shape, len(names) - 1, dtype=torch.int16)

        return read_layer(self.checkpoint.config, tensor, index, torch.float32), names

    def _outside(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Weights outside of the layers; those inside have no memory yet."""
        if name.startswith("model.layers."):
            return torch.empty(shape, device="meta")
        weight = self.checkpoint.tensor(name)
        check_weight(self.checkpoint.stored_name(name), weight, shape)
        return weight.float()


@dataclass(frozen=True, slots=True)
class ObservedLayer:
    """The `stored` names of a layer's tensors, and what its matrices multiplied, if they did."""

    stored: frozenset[str]
    inputs: Mapping[str, Inputs]


class _OneLayer(Llama):
    """The model with its embedding and one layer."""

    index = 0
    layer: Layer | None = None
    entering: Tensor | None = None
    """The states before the layer; the first has the embeddings."""

    def forward(
        self, token_ids: Tensor, positions: Tensor, rotary: Sequence[Turn | None], cache: KVCache, layout: Attention,
        adapted: AdaptedRows = (), recent: Recent | None = None, recurrence: Recurrence | None = None,
        pictures: Sequence[tuple[int, Tensor]] = (),
    ) -> Tensor:  # fmt: skip
        assert self.layer is not None
        hidden = self.embedded(token_ids, positions) if self.entering is None else self.entering
        step = self._step(positions, rotary, cache, layout, adapted, recent, recurrence)
        return self._through(self.layer, self.index, hidden, step)


class _Watch(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """While it is entered, adds up what the matrices in `marks` multiply. The keys are the addresses of their memory,
    the values the number of each row's tensor, [out]; of `numbers` only."""

    def __init__(self, marks: Mapping[int, Tensor], numbers: Collection[int]) -> None:
        super().__init__()
        self.inputs: dict[frozenset[int], Inputs] = {}
        self._marks = marks
        self._numbers = frozenset(numbers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            self._add(args[0], args[1])
        return func(*args, **(kwargs or {}))

    def _add(self, rows: Tensor, matrix: Tensor) -> None:
        mark = self._marks.get(matrix.untyped_storage().data_ptr())
        if mark is None:
            return
        first = matrix.storage_offset() // max(matrix.stride(0), 1)
        numbers = frozenset(mark[first : first + len(matrix)].unique().tolist()) & self._numbers
        if not numbers:
            return
        size = rows.shape[-1]
        seen = self.inputs.setdefault(numbers, Inputs(torch.zeros(size, size), torch.zeros(size), 0))
        seen.add(rows.reshape(-1, size).float())


def _matrices(layer: Any, marks: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The matrices of a layer, each with the number of each row's tensor."""
    for one in dataclasses.fields(layer):
        value, mark = getattr(layer, one.name), getattr(marks, one.name)
        if isinstance(value, Tensor) and value.dim() == 2:
            yield value, mark[:, 0]
        elif dataclasses.is_dataclass(value):
            yield from _matrices(value, mark)


def _chunk(text: Sequence[int]) -> Chunk:
    sequence = TokenSequence(0, list(text), SamplingParams(max_tokens=1))
    sequence.block_table = list(range(-(-len(text) // _BLOCK)))
    return sequence.chunk(len(text))
