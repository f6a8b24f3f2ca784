"""The outputs of a node that runs for each row of an empty batch."""

from __future__ import annotations

from collections.abc import Collection

from adapters.errors import CallerError
from adapters.tensors import Tensor
from gateway.features.pipelines.model import described
from gateway.features.pipelines.scope import Output, StepScope


class NoRows:
    """Empty lists for values of known names, or the outputs of a model of tensors with zero rows."""

    def __init__(self, names: Collection[str] = (), model: str | None = None) -> None:
        self._names = names
        self._model = model
        """The model whose metadata have the datatypes and shapes of the outputs."""

    async def output(self, scope: StepScope) -> Output:
        """The outputs. Raises `CallerError` if no outputs without rows can be made."""
        if self._names:
            return Output({name: [] for name in self._names})
        tensors = [] if self._model is None else (await described(self._model, scope)).outputs
        if not tensors or any(size < 0 for tensor in tensors for size in tensor.shape[1:]):
            message = f"The step `{scope.path}` has no row to compute: its inputs need one or more rows."
            raise CallerError(message, param=next(iter(scope.inputs or {}), None))
        shapes = {tensor.name: (tensor.datatype, (0, *tensor.shape[1:])) for tensor in tensors}
        return Output({name: Tensor(name, datatype, shape, b"") for name, (datatype, shape) in shapes.items()})
