"""Models that add up the values of a sequence, each with another way to store its sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters.tensors import Inference, Parameter
from runtimes.tensor.configuration.model_config import ModelConfig, SequenceBatching, SequenceControl, SequenceState
from runtimes.tensor.interfaces import Tensors
from tests.runtimes.tensor.scheduling.instances import model, request

START = SequenceControl("start", "START", "INT32")
READY = SequenceControl("ready", "READY", "FP32")
END = SequenceControl("end", "END", "BOOL")
CORRID = SequenceControl("corrid", "CORRID", "UINT64")


class BySlot:
    """Stores a sum for each row, and ignores rows that are not ready."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.ended: list[int] = []

    def __call__(self, inputs: Tensors) -> Tensors:
        values = inputs["IN"].copy()
        for row in range(len(values)):
            if inputs["READY"][row, 0]:
                if inputs["START"][row, 0]:
                    self.sums[row] = 0
                self.sums[row] += int(values[row, 0])
                values[row] = self.sums[row]
            if "END" in inputs and inputs["END"][row, 0]:
                self.ended.append(row)
        return {"OUT": values}


class ByName:
    """Stores a sum for each correlation id."""

    def __init__(self) -> None:
        self.sums: dict[Any, int] = {}

    def __call__(self, inputs: Tensors) -> Tensors:
        values = inputs["IN"].copy()
        names = [row[0] for row in inputs["CORRID"].tolist()]
        assert len(set(names)) == len(names), "two turns of one sequence"
        for row, name in enumerate(names):
            if inputs["START"][row, 0]:
                self.sums[name] = 0
            if "READY" not in inputs or inputs["READY"][row, 0]:
                self.sums[name] += int(values[row, 0])
                values[row] = self.sums[name]
            if "END" in inputs and inputs["END"][row, 0]:
                del self.sums[name]
        return {"OUT": values}


def with_state(inputs: Tensors) -> Tensors:
    """Stores nothing: it receives its sum, and returns the new sum."""
    total = inputs["SUM_IN"] + inputs["IN"].astype(np.int64)
    return {"OUT": total.astype(np.int32), "SUM_OUT": total}


def growing(inputs: Tensors) -> Tensors:
    """Its state is all that it was ever sent."""
    stored = np.concatenate([inputs["PAST_IN"], inputs["IN"]], axis=1)
    return {"OUT": stored.sum(axis=1, keepdims=True).astype(np.int32), "PAST_OUT": stored}


SUM = SequenceState("SUM_IN", "SUM_OUT", "INT64", (1,))
PAST = SequenceState("PAST_IN", "PAST_OUT", "INT32", (-1,))


def sequence_model(rules: SequenceBatching, max_batch_size: int = 4) -> ModelConfig:
    return dataclasses.replace(model(max_batch_size, (1,), None), sequence_batching=rules)


def turn(name: int | str, value: int, flags: str = "", **parameters: Parameter) -> Inference:
    """`flags`: s for the start of the sequence, e for its end."""
    facts: Mapping[str, Parameter] = {
        "sequence_id": name,
        "sequence_start": "s" in flags,
        "sequence_end": "e" in flags,
        **parameters,
    }
    return request(value, width=1, parameters=facts)
