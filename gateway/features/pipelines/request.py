"""The request of a pipeline: its values, and the requests of steps that are made from it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, Unsupported
from adapters.offload import codecs
from adapters.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ExplainRequest,
    GenerateRequest,
    InferRequest,
    ModelRequest,
)
from adapters.tensors import FRAMING, Inference, RequestedOutput, Tensor
from adapters.upstreams.inference import Reader
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.oip.request_view import SEQUENCE
from adapters.wire.openai import chat as openai
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from gateway.features.pipelines import bodies
from gateway.features.pipelines.values import (
    UnusableValueError,
    Value,
    ValueAbsent,
    Values,
    elements_of,
    plain,
    text_of,
)

Describe = Callable[[Call], Awaitable[ModelMetadata]]
"""Returns the metadata of the pipeline."""

_encode = msgspec.json.Encoder().encode
_STREAM = ("stream", "stream_options")
_ATTRIBUTES = ("prompt_tokens", "stream", "user", "max_tokens", "n", "model")
"""Values that every request has."""
_LONG = 512 * 1024
"""Characters of a text that are encoded in a worker process."""


class PipelineRequest:
    """The client's request. Its values are decoded once, on the first reference."""

    __slots__ = ("_call", "_describe", "_fields", "_inference", "request")

    def __init__(self, request: ModelRequest, call: Call, describe: Describe) -> None:
        if not isinstance(request, InferRequest | ChatRequest | CompletionRequest | EmbeddingRequest):
            raise Unsupported("The model is a pipeline, which does not support this operation.")
        self.request = request
        self._call = call
        self._describe = describe
        self._inference: Inference | None = None
        self._fields: dict[str, Value] = {}

    def takes(self, answer: Answer, *, is_forwarded: bool) -> bool:
        """Whether an answer is of the request's own operation, so that it can be forwarded unchanged.

        A whole answer to another request than the client's may have other outputs, or another form.
        """
        if isinstance(self.request, InferRequest):
            if answer.form.wire == "predict-v1":
                return self.is_json
            is_expected = answer.body is None or (is_forwarded and not self.request.stream)
            return is_expected and answer.form.wire in ("oip-http", "oip-grpc")
        return answer.form.wire == "openai"

    @property
    def is_json(self) -> bool:
        """Whether the client's request is one of KServe's v1."""
        return isinstance(self.request, InferRequest) and isinstance(self.request.payload, PredictV1Payload)

    async def as_json(self, model: str, inputs: Values | None) -> InferRequest:
        """A request of KServe's v1 with a step's inputs as its fields, or the client's own for None."""
        request = self.request
        if inputs is None:
            assert isinstance(request, InferRequest)
            return request.codec.rename(request, model)
        size = sum(len(each.data) for each in inputs.values() if isinstance(each, Tensor))
        body = await offload.run(size, bodies.encode_fields, dict(inputs))
        return await offload.run(len(body), bodies.request_of, body, model)

    async def inference(self) -> Inference:
        """The tensors of the request, decoded. Raises `CallerError`."""
        request = self.request
        assert isinstance(request, InferRequest)
        if self._inference is None:
            reader = Reader(lambda _model, _version, call: self._describe(call), lambda: 0.0)
            self._inference = await reader.inference(request, request.model, self._call)
        return self._inference

    async def value(self, name: str) -> Value:
        """One value of the request. Raises `CallerError` if the request has none of this name."""
        request = self.request
        if isinstance(request, InferRequest):
            if self.is_json and name not in {each.name for each in (await self._describe(self._call)).inputs}:
                return await self._json_value(name)
            inference = await self.inference()
            tensor = next((tensor for tensor in inference.inputs if tensor.name == name), None)
            if tensor is None:
                if name in inference.parameters:
                    return inference.parameters[name]
                raise ValueAbsent(f"The request has no input `{name}`, which the model needs.", param=name)
            return tensor
        assert isinstance(request, GenerateRequest)
        if name in _ATTRIBUTES:
            return getattr(request, name)
        if name not in self._fields:
            self._fields[name] = await self._read(request, name)
        return self._fields[name]

    async def _read(self, request: GenerateRequest, name: str) -> Value:
        """Decode a field, in a worker process if it is large. Raises `CallerError`."""
        field = {"text": _text_field(request), "images": "messages"}.get(name, name)
        raw = request.fields.get(field)
        if raw is None or (name == "images" and not isinstance(request, ChatRequest)):
            raise ValueAbsent(f"The request has no `{name}`, which the model needs.", param=name)
        view = memoryview(raw)
        return await offload.parse(view, bodies.read_value, view, name, field)

    async def _json_value(self, name: str) -> Value:
        """One field of a request of KServe's v1, or one of its parameters. Raises `CallerError`."""
        if not self._fields:
            body = self.request.payload.body if isinstance(self.request, InferRequest) else b""
            self._fields = dict(await offload.parse(body, bodies.decode_request, body))
        if name not in self._fields:
            raise ValueAbsent(f"The request has no `{name}`, which the model needs.", param=name)
        return self._fields[name]

    async def texts(self) -> list[str]:
        """Every text of the request, for a guard: of all messages, prompts and tensors. Raises `CallerError`."""
        request = self.request
        if isinstance(request, InferRequest):
            inputs = [tensor for tensor in (await self.inference()).inputs if tensor.datatype == "BYTES"]
            try:
                return ["\n".join(elements_of(tensor)) for tensor in inputs]
            except UnusableValueError as error:
                raise CallerError(f"A guard of the model cannot read the request: {error}.") from None
        assert isinstance(request, GenerateRequest)
        texts = list(_strings(await self.value(_text_field(request))))
        return ["\n".join(texts)] if isinstance(request, ChatRequest) else texts

    async def for_model(self, model: str, *, live: bool) -> ModelRequest:
        """The same request for another model, without a stream unless it is `live`."""
        request = self.request
        if isinstance(request, GenerateRequest):
            request.payload.report(self._call.ignored)
            return generate(request, {"model": model}, live=live)
        assert isinstance(request, InferRequest)
        forwarded = ("infer", "infer_stream", "generate_stream") if live else ("infer", "infer_stream")
        if request.wire not in ("oip-http", "oip-grpc") or request.kind not in forwarded:
            return await self.infer(model, await self.inference(), live=live)
        request = request.codec.rename(request, model)
        return request if live else replace(request, kind="infer", stream=False)

    async def infer(
        self, model: str, inference: Inference, outputs: tuple[str, ...] = (), *, live: bool = False
    ) -> InferRequest:
        """A request with tensors for a model. It demands a stream if it is `live` and the client demands a stream."""
        names = [RequestedOutput(name) for name in outputs]
        whole = Inference(model, "", inference.id, inference.parameters, inference.inputs, names)
        request = await codecs.request_from(whole, sum(len(tensor.data) for tensor in inference.inputs))
        client = self.request
        if not isinstance(client, InferRequest):
            return request
        if client.sequence and SEQUENCE in inference.parameters:
            request = replace(request, sequence=client.sequence, starts=client.starts, ends=client.ends)
        return replace(request, kind="infer_stream", stream=True) if live and client.stream else request

    async def inferring(self, model: str, tensors: list[Tensor], *, live: bool) -> InferRequest:
        """A request with a step's own tensors, and the id and the parameters of the client's inference."""
        client = await self.inference() if isinstance(self.request, InferRequest) else Inference(model)
        parameters = {name: value for name, value in client.parameters.items() if name not in FRAMING}
        return await self.infer(model, Inference(model, "", client.id, parameters, tensors), live=live)

    async def explaining(self, model: str, tensors: list[Tensor] | None) -> ExplainRequest:
        """A request for an explanation of a step's own tensors, or of the client's for None.

        The outputs that the client requests are not those of an explanation, so it has all that there are.
        """
        if tensors is None:
            tensors = list((await self.inference()).inputs) if isinstance(self.request, InferRequest) else []
        request = replace(await self.inferring(model, tensors, live=False), kind="explain")
        return ExplainRequest(**{name: getattr(request, name) for name in request.__struct_fields__})

    async def chat(self, model: str, inputs: Values, *, live: bool) -> GenerateRequest:
        """A chat, or a completion for a client's completion, with some fields set by a step.

        `prompt` is the text of the only message, `system` that of the system message before it; any other input is the
        field of this name. An `input` without these makes an embedding. Raises `UnusableValueError`.
        """
        request = self.request
        if isinstance(request, GenerateRequest):
            request.payload.report(self._call.ignored)
        fields: dict[str, Any] = {"model": model}
        fields |= {name: plain(value) for name, value in inputs.items() if name not in ("prompt", "system")}
        if "input" in inputs and not inputs.keys() & {"prompt", "system", "messages"}:
            if isinstance(request, EmbeddingRequest):
                return generate(request, fields, live=live)
            return openai.embedding_request({name: _raw(value) for name, value in fields.items()}, 0)
        if isinstance(request, CompletionRequest) and "system" not in inputs and "messages" not in inputs:
            prompt = {"prompt": text_of(inputs["prompt"])} if "prompt" in inputs else {}
            return generate(request, {**fields, **prompt}, live=live)
        if "prompt" in inputs:
            messages = [{"role": "user", "content": text_of(inputs["prompt"])}]
            fields["messages"] = Raw(await _encoded(messages, len(messages[0]["content"])))
        if "system" in inputs:
            raw = fields.get("messages") or (request.fields["messages"] if isinstance(request, ChatRequest) else b"[]")
            raw, text = memoryview(raw if isinstance(raw, Raw | bytes) else _encode(raw)), text_of(inputs["system"])
            size = len(raw) if len(raw) >= offload.SCANNED else len(text) if len(text) >= _LONG else 0
            fields["messages"] = Raw(await offload.run(size, bodies.with_system, raw, text))
        if isinstance(request, ChatRequest):
            return generate(request, fields, live=live)
        if "messages" not in fields:
            raise UnusableValueError("a chat needs a `prompt` or `messages`")
        return openai.chat_request({name: _raw(value) for name, value in fields.items()}, 0)


def _text_field(request: GenerateRequest) -> str:
    """The field with the texts of a request."""
    if isinstance(request, ChatRequest):
        return "messages"
    return "prompt" if isinstance(request, CompletionRequest) else "input"


async def _encoded(value: Any, characters: int) -> bytes:
    """A value with long texts as JSON, encoded in a worker process if these are long."""
    return await offload.run(characters if characters >= _LONG else 0, bodies.encode_value, value)


def generate(request: GenerateRequest, changes: dict[str, Any], *, live: bool) -> GenerateRequest:
    """A client's request with other fields."""
    fields = {**request.fields, **{name: _raw(value) for name, value in changes.items()}}
    if not live:
        fields = {name: raw for name, raw in fields.items() if name not in _STREAM}
    made: GenerateRequest
    if isinstance(request, ChatRequest):
        vision = None if "messages" in changes else request.uses_feature("vision")
        made = openai.chat_request(fields, request.size, vision=vision)
    elif isinstance(request, CompletionRequest):
        made = openai.completion_request(fields, request.size)
    else:
        made = openai.embedding_request(fields, request.size)
    return replace(made, timeout=request.timeout)


def _raw(value: Any) -> Raw:
    return value if isinstance(value, Raw) else Raw(_encode(value))


def _strings(value: Value) -> Iterator[str]:
    """The texts inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
