"""The nodes `model` and `call`: a model of the configuration, or Python code in a process of the tensor runtime."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from adapters.base import Answer
from adapters.errors import BackendError, HasNoState, SeveralResponses, StepFailed, TakesNoPrompts
from adapters.requests import InferRequest, ModelQuery, ModelRequest
from adapters.tensors import Tensor
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import TensorMetadata
from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.parts import PipelineTensorConfig
from gateway.features.pipelines.scope import Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, Values, tensor_of

_encode = msgspec.json.Encoder().encode


class ModelNode:
    """Sends the client's request, or the step's inputs, to a model."""

    def __init__(
        self,
        model: str,
        *,
        takes_tensors: bool,
        declared: Mapping[str, TensorMetadata] | None = None,
        takes_json: bool = False,
        explains: bool = False,
        outputs: Sequence[PipelineTensorConfig] = (),
    ) -> None:
        """`declared` are the model's inputs; its server describes them if None. `outputs` are those of its
        `signature`. With `explains`, the answer is the explanation of the model's answer."""
        self.model = model
        self._declared = declared
        self._check = partial(check_outputs, model, {each.name: each for each in outputs}) if outputs else None
        self._takes_tensors = takes_tensors
        self._explains = explains
        self._takes_json = takes_json
        """Whether its servers are KServe v1's without declared tensors, which receive fields of JSON."""

    async def run(self, scope: StepScope) -> Output:
        request = await self._request(scope)
        answer = await self._call(request, scope)
        if scope.call.step is not None:
            scope.call.step.endpoint = answer.endpoint
        if answer.body is None and not scope.is_live:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        is_forwarded = scope.inputs is None and not self._explains  # an explanation has another request
        return Output(answer=answer, is_forwarded=is_forwarded, check=self._check)

    async def _call(self, request: ModelRequest, scope: StepScope) -> Answer:
        """Call the model. Servers without prompts receive tensors, and servers without state single requests."""
        models = scope.call.models
        assert models is not None
        try:
            return await models.call(self.model, request, scope.call)
        except TakesNoPrompts:
            request = await scope.request.infer(self.model, await scope.request.inference(), live=True)
        except SeveralResponses as error:
            if scope.is_live:
                raise
            message = f"the model `{self.model}` answers with any number of responses, and other steps need exactly one"
            raise StepFailed(f"The step `{scope.path}` failed: {message}.", step=scope.path) from error
        except HasNoState:
            assert isinstance(request, InferRequest)
            request = replace(request, sequence="", starts=False, ends=False)
        return await self._call(request, scope)

    def bound(self, estimate: Estimate) -> Bound:
        return estimate(self.model)

    async def _request(self, scope: StepScope) -> ModelRequest:
        incoming, inputs = scope.request, scope.inputs
        if self._takes_json and (inputs is not None or incoming.is_json):
            return await incoming.as_json(self.model, inputs)
        if not self._explains and inputs is None and isinstance(incoming.request, InferRequest) == self._takes_tensors:
            return await incoming.for_model(self.model, live=scope.is_live)
        try:
            if self._explains:
                tensors = await self._tensors(inputs, scope) if inputs is not None else None
                return await incoming.explaining(self.model, tensors)
            if self._takes_tensors:
                tensors = await self._tensors(inputs or {}, scope)
                return await incoming.inferring(self.model, tensors, live=scope.is_live)
            return await incoming.chat(self.model, inputs or {}, live=scope.is_live)
        except UnusableValueError as error:
            raise scope.fail(error) from None

    async def _tensors(self, inputs: Values, scope: StepScope) -> list[Tensor]:
        declared = self._declared or {}
        if self._declared is None and not all(isinstance(value, Tensor) for value in inputs.values()):
            declared = {tensor.name: tensor for tensor in (await described(self.model, scope)).inputs}
        return [tensor_of(name, value, declared.get(name)) for name, value in inputs.items()]


def check_outputs(model: str, declared: Mapping[str, PipelineTensorConfig], values: Values) -> None:
    """Raise `BackendError` for an output that does not fit its declaration."""
    for name, value in values.items():
        expected = declared.get(name)
        if expected is None or not isinstance(value, Tensor):
            continue
        sizes = zip(value.shape, expected.shape, strict=False)
        fits = len(value.shape) == len(expected.shape) and all(size in (given, -1) for given, size in sizes)
        if value.datatype != expected.datatype or not fits:
            given = f"{value.datatype} {list(value.shape)}"
            message = f"the output `{name}` of `{model}` is {given}, and its signature has {expected.datatype}"
            raise BackendError(f"{message} {list(expected.shape)}.", code="upstream_bad_response")


async def described(model: str, scope: StepScope) -> oip_bodies.ModelMetadata:
    """The metadata of a model. Raises `InferenceError`."""
    assert scope.call.models is not None
    answer = await scope.call.models.call(model, ModelQuery(model=model), scope.call)
    if answer.body is None:
        await answer.aclose()
        raise BackendError("The upstream answered a query with a stream.", code="upstream_bad_response")
    return oip_bodies.decode_metadata(answer.body)


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
