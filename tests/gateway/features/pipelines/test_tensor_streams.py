"""Streams of tensors through pipelines: responses leave as the last step sends them, on every door."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, SeveralResponses, TakesNoPrompts
from adapters.fake import FakeAdapter, Played, Script
from adapters.requests import InferRequest, ModelRequest
from adapters.tensors import EMPTY_FINAL, FINAL, Inferred, Tensor, join_bytes
from adapters.types import OIP_GENERATE, OIP_GRPC, OIP_JSON, Form, Usage
from adapters.wire.oip import responses as oip_responses
from adapters.wire.protos import METHODS, inference
from tests.gateway.features.pipelines.rigs import streamed
from tests.gateway.fronts.oip import TensorDoor, TensorFake, tensor_door

pytestmark = pytest.mark.realtime

HANGS = 3600.0
WORDS = ("one ", "two ", "three")
METADATA = {
    "name": "chat",
    "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1]}],
    "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1]}],
}
DIRECT = {"steps": [{"name": "write", "model": "chat"}]}
WITH_INPUTS = {"steps": [{"name": "write", "model": "chat", "in": {"text_input": "request.text_input"}}]}
CHOSEN = {"switch": [{"if": 'request.text_input == "other"', "model": "chat"}, {"else": True, "model": "chat"}]}


def response(word: str, **parameters: Any) -> Inferred:
    return Inferred("chat", "1", "", parameters, [Tensor("text_output", "BYTES", (1,), join_bytes([word.encode()]))])


def messages(words: Sequence[str], form: Form, *, marks: bool = False) -> tuple[bytes, ...]:
    """The pieces of a stream with one word in each. `marks`: an empty response marks the end."""
    made = [response(word, **({FINAL: False} if marks else {})) for word in words]
    if marks:
        made.append(Inferred("chat", "1", "", {FINAL: True}))
    return streamed(made, form)


class Writer(TensorFake):
    """A decoupled model in the wire of its server, which answers prompts in their own form if it `takes_prompts`."""

    def __init__(self, form: Form, *, marks: bool = False, takes_prompts: bool = True, **script: Any) -> None:
        self._takes_prompts = takes_prompts or form is OIP_GRPC
        self._as_events = form is not OIP_GRPC
        super().__init__(Script(form=form, chunks=messages(WORDS, form, marks=marks), **script))
        self.prompted = FakeAdapter(Script(form=OIP_GENERATE, chunks=messages(WORDS, OIP_GENERATE), **script))
        self.about["metadata"] = METADATA

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if not isinstance(request, InferRequest) or request.kind != "generate_stream":
            return await super().call(request, call)
        if not self._takes_prompts:
            raise TakesNoPrompts("The servers take tensors: call `infer`.")
        return await (self.prompted.call if self._as_events else super().call)(request, call)

    def played(self) -> list[Played]:
        """All streams, in the form of tensors and of prompts."""
        return [*self.calls, *self.prompted.calls]


@asynccontextmanager
async def opened(writer: FakeAdapter, pipeline: dict[str, Any]) -> AsyncIterator[TensorDoor]:
    models = [{"name": "chat", "routes": [{"to": "main"}]}, {"name": "whole", "pipeline": pipeline}]
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": "oip-http"}]
    async with tensor_door(writer, models=models, pools=pools) as door:
        yield door
        await door.rig.until_idle()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


@pytest.mark.parametrize("pipeline", [DIRECT, WITH_INPUTS, CHOSEN], ids=["direct", "with-inputs", "switch"])
@pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("takes_prompts", [True, False])
async def test_generated_objects_leave_one_by_one(pipeline: dict[str, Any], form: Form, takes_prompts: bool) -> None:
    async with opened(Writer(form, takes_prompts=takes_prompts), pipeline) as door:
        answer = await door.post("/v2/models/whole/generate_stream", {"text_input": "go", "parameters": {"top": 3}})
        assert answer.content_type == "text/event-stream"
        streamed = objects(await answer.text())
        assert [each["text_output"] for each in streamed] == list(WORDS)
        assert not any("outputs" in each for each in streamed)


@pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("pipeline", [DIRECT, WITH_INPUTS], ids=["direct", "with-inputs"])
@pytest.mark.parametrize("verb", ["generate_stream", "infer_stream"])
async def test_the_first_response_leaves_before_the_second_exists(
    verb: str, pipeline: dict[str, Any], form: Form
) -> None:
    """The server never sends its second response: the client reads the first one, and leaves."""
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["go"]}
    body = {"text_input": "go"} if verb == "generate_stream" else {"inputs": [tensor]}
    writer = Writer(form, gap=HANGS)
    async with opened(writer, pipeline) as door:
        url = f"{door.url}/v2/models/whole/{verb}"
        async with door.http.post(url, json=body, headers=door.keyed) as answer:
            first = await answer.content.readuntil(b"\n\n")
            (event,) = objects(first.decode())
            text = event["text_output"] if verb == "generate_stream" else event["outputs"][0]["data"][0]
            assert text == WORDS[0]
        await door.rig.until_idle()
        assert [call.end for call in writer.played()] == ["cancelled"]


@pytest.mark.parametrize("pipeline", [DIRECT, WITH_INPUTS], ids=["direct", "with-inputs"])
async def test_generate_answers_once_with_an_object(pipeline: dict[str, Any]) -> None:
    whole = oip_responses.encode_response(response("whole"))[0]
    fake = TensorFake(Script(chunks=(whole,), form=OIP_JSON, usage=Usage(rows=1)))
    fake.about["metadata"] = METADATA
    async with opened(fake, pipeline) as door:
        answer = await door.post("/v2/models/whole/generate", {"text_input": "go"})
        assert (answer.status, (await answer.json())["text_output"]) == (200, "whole")
        answer = await door.post("/v2/models/whole/generate", {"text_input": 5})
        assert answer.status == 400


async def test_a_whole_answer_is_the_only_event_of_a_stream() -> None:
    """Of rows that are computed one by one, the answer is whole."""
    whole = oip_responses.encode_response(response("whole"))[0]
    fake = TensorFake(Script(chunks=(whole,), form=OIP_JSON, usage=Usage(rows=1)))
    fake.about["metadata"] = METADATA
    row = {"name": "write", "model": "chat", "in": {"text_input": "request.text_input"}, "each": True}
    async with opened(fake, {"steps": [row]}) as door:
        answer = await door.post("/v2/models/whole/generate_stream", {"text_input": "go"})
        assert answer.content_type == "text/event-stream"
        assert [each["text_output"] for each in objects(await answer.text())] == ["whole"]


@pytest.mark.parametrize("report", ["ModelInfer RPC doesn't support models with decoupled transaction policy",
                                    "Model `b` sends any number of responses: use a stream."])  # fmt: skip
async def test_a_decoupled_model_in_a_middle_step_is_an_error_of_the_pipeline(report: str) -> None:
    fake = TensorFake(Script(fault=SeveralResponses(report)))
    fake.about["metadata"] = METADATA
    first = {"name": "write", "model": "chat", "in": {"text_input": "request.text_input"}}
    last = {"name": "again", "model": "chat", "in": {"text_input": "write.text_output"}}
    for steps, status, message in (
        ([first, last], 502, "The step `write` failed: the model `chat` answers with any number of responses"),
        ([first], 400, report),
    ):
        async with opened(fake, {"steps": steps}) as door:
            answer = await door.post("/v2/models/whole/generate", {"text_input": "go"})
            assert answer.status == status
            assert message in (await answer.json())["error"]


async def test_a_failure_after_the_first_object_is_an_event() -> None:
    writer = Writer(OIP_JSON, takes_prompts=False, fault=BackendError("It broke."), fault_after=1)
    async with opened(writer, DIRECT) as door:
        answer = await door.post("/v2/models/whole/generate_stream", {"text_input": "go"})
        first, last = objects(await answer.text())
        assert (first["text_output"], last) == (WORDS[0], {"error": "It broke."})


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC], ids=["http", "grpc"])
@pytest.mark.parametrize("pipeline", [DIRECT, WITH_INPUTS], ids=["direct", "with-inputs"])
@pytest.mark.parametrize("requests_final", [False, True])
async def test_a_decoupled_last_step_streams_to_clients_over_grpc(
    pipeline: dict[str, Any], form: Form, marks: bool, requests_final: bool
) -> None:
    request = inference.ModelInferRequest(model_name="whole", id="7")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(join_bytes([b"go"]))
    if requests_final:
        request.parameters[EMPTY_FINAL].bool_param = True
    method = METHODS["ModelStreamInfer"]
    async with opened(Writer(form, marks=marks), pipeline) as door, grpc.aio.insecure_channel(door.grpc) as channel:
        stub = channel.stream_stream(method.path, response_deserializer=method.response.FromString)
        call = stub(iter([request.SerializeToString()]), metadata=list(door.keyed.items()), timeout=30)
        answers = [each async for each in call]
        assert [each.error_message for each in answers] == [""] * len(answers)
        responses = [each.infer_response for each in answers]
        texts = [raw for each in responses for raw in each.raw_output_contents]
        assert texts == [join_bytes([word.encode()]) for word in WORDS]
        finals = [each.parameters[FINAL].bool_param for each in responses]
        assert finals == [False] * 3 + [True] * (len(responses) - 3)
        assert len(responses) == (4 if marks or requests_final else 3)
        received = door.fake.received[-1].inference
        assert (received.id, bool(received.parameters.get(EMPTY_FINAL))) == ("7", requests_final)
