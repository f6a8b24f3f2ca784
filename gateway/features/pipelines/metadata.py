"""Reports of a pipeline for clients of tensors: its metadata, derived from the models of its steps, and statistics."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError
from adapters.requests import ModelQuery
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.pipelines.pipeline import NodeConfig, PipelineConfig, StepConfig
from gateway.features.pipelines.scope import REQUEST

FRESH_SECONDS = 30.0
PLATFORM = "headrace-pipeline"
_TRITON = {"BYTES": "STRING"}
"""Datatypes with another name in Triton's configurations."""
_TEXT = TensorMetadata("text", "BYTES", (-1,))
_ROWS = tuple(TensorMetadata(name, "INT64", (-1, -1)) for name in ("ids", "mask", "types", "count"))
_INPUTS = {"decode": ("BYTES", (-1,)), "tokenize": ("BYTES", (-1,)), "detokenize": ("INT64", (-1, -1))}
"""Datatype and shape of the inputs of nodes that are no models."""
_OUTPUTS = {"template": (_TEXT,), "tokenize": _ROWS, "detokenize": (_TEXT,)}
"""Outputs of nodes, by kind."""


class PipelineMetadata:
    """The inputs are those that the models receive from the request, the outputs those that the answer has.

    Declarations of the configuration take precedence over reports of servers.
    """

    def __init__(self, name: str, config: PipelineConfig, clock: Callable[[], float]) -> None:
        self._name = name
        self._config = config
        self._clock = clock
        self._cached: tuple[float, ModelMetadata] | None = None

    async def of(self, call: Call) -> ModelMetadata:
        """The metadata. Raises `InferenceError` if a model cannot be described."""
        now = self._clock()
        if self._cached is None or now - self._cached[0] > FRESH_SECONDS:
            self._cached = (now, await self._derived(call))
        return self._cached[1]

    async def ready(self, call: Call) -> None:
        """Query the readiness of every model. Raises the first failure."""
        models = dict.fromkeys((*self._config.models(), *_receivers(self._config)))
        queries = [_query(call, model, "ready") for model in models]
        for end in await asyncio.gather(*queries, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end

    async def _derived(self, call: Call) -> ModelMetadata:
        config = self._config
        inputs, outputs = _declared(config.inputs), _declared(config.outputs)
        models = {}
        if not (inputs and outputs):
            names = list(dict.fromkeys(_receivers(config)))
            answers = await asyncio.gather(*(_query(call, name, "metadata") for name in names), return_exceptions=True)
            for end in answers:
                if isinstance(end, BaseException) and not isinstance(end, CallerError):  # a model of chats has none
                    raise end
            models = {
                name: oip_bodies.decode_metadata(answer.body or b"")
                for name, answer in zip(names, answers, strict=True)
                if isinstance(answer, Answer)
            }
        return ModelMetadata(
            self._name,
            ["1"],
            PLATFORM,
            inputs or list(_inputs(config, models)),
            outputs or list(_outputs(config, models)),
        )


class PipelineStatistics:
    """The requests of a pipeline in this process since its configuration took effect.

    The time of a request ends where its answer begins.
    """

    __slots__ = ("_ends", "_last", "_rows")

    def __init__(self) -> None:
        self._ends = {"success": [0, 0.0], "fail": [0, 0.0]}
        self._rows = 0
        self._last = 0.0

    def ended(self, seconds: float, rows: int, *, failed: bool) -> None:
        """Count a request."""
        end = self._ends["fail" if failed else "success"]
        end[0] += 1
        end[1] += seconds
        if not failed:
            self._rows += rows
            self._last = time.time()

    def report(self, name: str) -> dict[str, Any]:
        """The statistics in Triton's form. The whole time counts as that of the steps, which have the queues."""
        ends = {end: {"count": count, "ns": round(seconds * 1e9)} for end, (count, seconds) in self._ends.items()}
        success = ends["success"]
        passed = {"count": success["count"], "ns": 0}
        parts = dict.fromkeys(("queue", "compute_input", "compute_output"), passed) | {"compute_infer": success}
        parts |= {part: {"count": 0, "ns": 0} for part in ("cache_hit", "cache_miss")}
        entry = {
            "name": name,
            "version": "1",
            "last_inference": round(self._last * 1000),
            "inference_count": self._rows,
            "execution_count": self._ends["success"][0],
            "inference_stats": ends | parts,
            "batch_stats": [],
        }
        return {"model_stats": [entry]}


def triton_config(described: ModelMetadata) -> dict[str, Any]:
    """The metadata in the form of Triton's model configuration, which perf_analyzer and other clients of Triton read.

    The dimensions are whole: a pipeline has no batches of its own.
    """

    def tensors(described: Iterable[TensorMetadata]) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "data_type": f"TYPE_{_TRITON.get(each.datatype, each.datatype)}", "dims": each.shape}
            for each in described
        ]

    return {
        "name": described.name,
        "platform": described.platform,
        "backend": "",
        "max_batch_size": 0,
        "input": tensors(described.inputs),
        "output": tensors(described.outputs),
    }


def _declared(tensors: tuple[PipelineTensorConfig, ...]) -> list[TensorMetadata]:
    return [TensorMetadata(tensor.name, tensor.datatype, tensor.shape) for tensor in tensors]


async def _query(call: Call, model: str, about: str) -> Answer:
    assert call.models is not None
    query = ModelQuery(model=model, about="ready" if about == "ready" else "metadata")
    answer = await call.models.call(model, query, call.part())
    if answer.body is None:
        await answer.aclose()
        raise BackendError("The upstream answered a query with a stream.", code="upstream_bad_response")
    return answer


def _receivers(node: NodeConfig) -> Iterator[str]:
    """The models that receive the inputs of nodes unchanged."""
    if node.receiver is not None:
        yield node.receiver
    for inner in node.nodes():
        yield from _receivers(inner)


def _received(
    node: NodeConfig, models: Mapping[str, ModelMetadata], given: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, str], Sequence[TensorMetadata]]]:
    """The references of each node's inputs, none for the unchanged request, and the tensors that the node receives."""
    inputs = (node.inputs if isinstance(node, StepConfig) else {}) or given
    if node.receiver is not None and node.receiver in models:
        yield inputs, models[node.receiver].inputs
    for kind, _ in node.placed_leaves():
        if kind in _INPUTS:
            yield inputs, [TensorMetadata(name, *_INPUTS[kind]) for name in inputs]
    for inner in node.nodes():
        yield from _received(inner, models, inputs)


def _inputs(config: NodeConfig, models: Mapping[str, ModelMetadata]) -> Iterator[TensorMetadata]:
    seen = set()
    for inputs, tensors in _received(config, models, {}):
        for tensor in tensors:
            reference = inputs.get(tensor.name, "") if inputs else f"{REQUEST}.{tensor.name}"
            step, _, field = reference.partition(".")
            if step == REQUEST and field not in seen:
                seen.add(field)
                yield TensorMetadata(field, tensor.datatype, tensor.shape)


def _outputs(node: NodeConfig, models: Mapping[str, ModelMetadata]) -> Iterator[TensorMetadata]:
    """The outputs of a node: of its model, of its first member or branch, of its last step, or those of `out`."""
    if isinstance(node, StepConfig) and node.explain:
        return  # only an answer tells which tensors an explanation has
    if node.receiver is not None:
        yield from models[node.receiver].outputs if node.receiver in models else ()
        return
    for kind, _ in node.placed_leaves():
        yield from _OUTPUTS.get(kind, ())
    if not node.out:
        if (inner := node.answering()) is not None:
            yield from _outputs(inner, models)
        return
    steps = {step.name: list(_outputs(step, models)) for step in node.steps}
    for name, reference in node.out.items():
        step, _, field = reference.partition(".")
        for tensor in steps.get(step, ()):
            if tensor.name == field:
                yield TensorMetadata(name, tensor.datatype, tensor.shape)
