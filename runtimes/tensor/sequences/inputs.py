"""Inputs that the runtime makes: controls and states of each row's sequence."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

import numpy as np

from adapters.errors import CallerError
from adapters.tensors import split_bytes
from runtimes.tensor.configuration.model_config import ModelConfig, SequenceControl, SequenceState
from runtimes.tensor.datatypes import DTYPES, fp32_to_bf16
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors
from runtimes.tensor.scheduling.pending import PreparedRequest
from runtimes.tensor.sequences.sequence import RequestSequence, SequenceId, Turn


class SequenceInputs:
    """The inputs of one model's sequences."""

    def __init__(self, config: ModelConfig) -> None:
        rules = config.sequence_batching
        assert rules is not None
        self._row = (1, 1) if config.max_batch_size else (1,)
        self._batched = config.max_batch_size > 0
        self._flags = [
            (
                control.kind,
                control.name,
                _flag(control, control.false_true[0], self._row),
                _flag(control, control.false_true[1], self._row),
            )
            for control in rules.controls
            if control.kind != "corrid"
        ]
        self._corrid = next((control for control in rules.controls if control.kind == "corrid"), None)
        self._states = rules.states
        self._initial = {state.input_name: _initial(state, self._batched) for state in rules.states}
        kinds = {control.kind for control in rules.controls}
        self.has_end_control = "end" in kinds
        self.has_ready_control = "ready" in kinds
        self.has_state = bool(rules.states)

    def check(self, name: SequenceId) -> None:
        """Raises `CallerError` for an id that the model's control cannot hold."""
        if self._corrid is None or self._corrid.datatype == "BYTES":
            return
        dtype = DTYPES[self._corrid.datatype]
        if isinstance(name, str):
            raise CallerError(
                f"`sequence_id` must be a number for this model, which receives it as {self._corrid.datatype}.",
                param="sequence_id",
            )
        if name > np.iinfo(dtype).max:
            raise CallerError(
                f"`sequence_id` is more than the model's {self._corrid.datatype} can hold.", param="sequence_id"
            )

    def key(self, turn: Turn) -> Hashable:
        """Equal for turns of one batch."""
        if not self.has_state:
            return turn.key
        states = {} if turn.start else turn.sequence.states
        shapes = [states.get(state.input_name, self._initial[state.input_name]).shape for state in self._states]
        return turn.key, tuple(shapes)

    def state(self, sequence: RequestSequence, name: str) -> Array:
        return sequence.states.get(name, self._initial[name])

    def of(self, turn: Turn) -> Tensors:
        """All inputs of one row."""
        sequence = turn.sequence
        if turn.start:
            sequence.states = {}
        inputs = dict(turn.prepared.inputs)
        self._control(inputs, turn.start, turn.end, turn.valid, sequence.id)
        for state in self._states:
            inputs[state.input_name] = self.state(sequence, state.input_name)
        return inputs

    def padding(self, like: Tensors) -> Tensors:
        """A row that fills a slot: zeros in the shapes of another row's inputs."""
        inputs = {name: _zeros(array.shape, array.dtype) for name, array in like.items()}
        self._control(inputs, False, False, False, 0)
        return inputs

    def nothing(self, like: PreparedRequest) -> PreparedRequest:
        """A request of zeros in the shapes of another."""
        inputs = {name: _zeros(array.shape, array.dtype) for name, array in like.inputs.items()}
        return PreparedRequest(inputs, like.rows, like.key)

    def keep(self, sequence: RequestSequence, outputs: Tensors, row: int) -> None:
        """Store the states of one row of a batch's outputs."""
        for state in self._states:
            array = outputs[state.output_name]
            # A copy: a view would keep the whole batch alive for as long as the sequence.
            sequence.states[state.input_name] = (array[row : row + 1] if self._batched else array).copy()

    def _control(self, inputs: dict[str, Array], start: bool, end: bool, ready: bool, id: SequenceId) -> None:
        flags = {"start": start, "end": end, "ready": ready}
        for kind, name, false, true in self._flags:
            inputs[name] = true if flags[kind] else false
        if self._corrid is not None:
            if self._corrid.datatype == "BYTES":
                array: Array = np.empty(self._row, object)
                array[...] = str(id or "").encode()
            else:
                array = np.full(self._row, id or 0, DTYPES[self._corrid.datatype])
            inputs[self._corrid.name] = array


def _flag(control: SequenceControl, value: float, shape: tuple[int, ...]) -> Array:
    if control.datatype == "BF16":
        return fp32_to_bf16(np.full(shape, value, np.float32))
    return np.full(shape, value, DTYPES[control.datatype])


def _initial(state: SequenceState, batched: bool) -> Array:
    """The first value, as one row. Raises `ModelLoadError` where it does not fit."""
    dims = state.dims if state.initial_dims is None else state.initial_dims
    shape = tuple([1 if dim == -1 else dim for dim in dims])
    row = (1, *shape) if batched else shape
    dtype = DTYPES[state.datatype]
    if state.initial == "zero":
        return _zeros(row, dtype)
    assert isinstance(state.initial, bytes)
    try:
        if state.datatype != "BYTES":
            return np.frombuffer(state.initial, dtype).reshape(row)
        elements = np.empty(prod(shape), object)
        elements[:] = split_bytes(state.initial, elements.size, state.input_name)
        return elements.reshape(row)
    except (ValueError, CallerError) as error:
        raise ModelLoadError(
            f"the first value of state `{state.input_name}` has {len(state.initial)} bytes, which does not fit"
            f" {state.datatype} of shape {list(shape)}"
        ) from error


def _zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    return np.full(shape, b"", object) if dtype.hasobject else np.zeros(shape, dtype)
