"""The node `call`: sends values to Python code in a process of the bundled tensor runtime."""

from __future__ import annotations

import msgspec

from adapters.tensors import Tensor
from adapters.wire.oip.bodies import TensorMetadata
from config.schema.pipelines.call import CallConfig
from gateway.features.pipelines.model import ModelNode
from gateway.features.pipelines.scope import Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import Value, Values

_encode = msgspec.json.Encoder().encode


class CallNode:
    """A call of a model of tensors. An object, or a list of other values than numbers or texts, is sent as JSON."""

    def __init__(self, config: CallConfig) -> None:
        declared = {each.name: TensorMetadata(each.name, each.datatype, each.shape) for each in config.inputs}
        self._node = ModelNode(config.receiver, takes_tensors=True, declared=declared or None)
        self._has_tokens = config.file is None

    async def run(self, scope: StepScope) -> Output:
        inputs: Values = {name: _sent(value) for name, value in (scope.inputs or {}).items()}
        return await self._node.run(scope.inner(inputs=inputs))

    def bound(self, estimate: Estimate) -> Bound:
        return self._node.bound(estimate) if self._has_tokens else Bound(rows=estimate.rows)


def _sent(value: Value) -> Value:
    """A value as a tensor can hold it: JSON as a text."""
    if isinstance(value, Tensor | str | bool | int | float):
        return value
    is_flat = isinstance(value, list) and (all(isinstance(each, str) for each in value) or _are_numbers(value))
    return value if is_flat and value else _encode(value).decode()


def _are_numbers(values: list[Value]) -> bool:
    return all(isinstance(each, int | float) for each in values)
