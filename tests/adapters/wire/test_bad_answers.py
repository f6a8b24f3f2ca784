"""Any answer of a server is a value or the typed error of a bad response, whichever decoder reads it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import InferenceError
from adapters.types import Usage
from adapters.upstreams.oip import dialects
from adapters.wire import torchserve
from adapters.wire.anthropic import answers as anthropic
from adapters.wire.anthropic.errors import decode_error as anthropic_error
from adapters.wire.apps import bentoml_calls, bentoml_schema, ray_serve
from adapters.wire.apps import tensors as app_tensors
from adapters.wire.error_table import decode_error as openai_error
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import responses as oip
from adapters.wire.oip.bodies import TensorMetadata
from adapters.wire.openai import chat, model_field
from adapters.wire.responses import native
from adapters.wire.text import chat_translation as translation
from adapters.wire.text import tgi
from adapters.wire.tfserving import predict_v1_upstream, rest
from gateway.features.pipelines.rerank import rank_embedded
from gateway.traffic.answer_refusals import body_refuses
from tests.support.bad_answers import bad_json

OUTPUTS = [TensorMetadata("y", "FP32", (-1,)), TensorMetadata("t", "BYTES", (-1,))]
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
CHAT = {"id": "a", "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "usage": USAGE}
TEXT = {"choices": [{"index": 0, "text": "x", "logprobs": {"tokens": ["x"], "token_logprobs": [0.5]}}], "usage": USAGE}
ERROR = {"error": {"message": "m", "type": "t", "code": "c", "param": "p"}, "detail": [{"msg": "x"}], "message": "x"}
OIP = {"model_name": "m", "id": "1", "outputs": [
    {"name": "y", "datatype": "FP32", "shape": [2], "data": [1, 2], "parameters": {"a": 1}}]}  # fmt: skip
SERVABLE = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {"error_message": ""}}]}
SIGNATURES = {"model_spec": {"name": "m"}, "metadata": {"signature_def": {"signature_def": {"serving_default": {
    "inputs": {"x": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}}}}}}}  # fmt: skip
APPLICATIONS = {"applications": {"a": {"status": "RUNNING", "message": "m", "deployments": {
    "d": {"status": "UPDATING", "message": "x"}}}}}  # fmt: skip
SERVICE = {"name": "s", "routes": [{"name": "r", "route": "/r", "input": {
    "properties": {"x": {"type": "tensor", "shape": [1], "dtype": "float32"}}, "type": "object"},
    "output": {"type": "string"}}]}  # fmt: skip
METADATA = {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}
WORKERS = [{"modelName": "m", "modelVersion": "1", "workers": [{"status": "READY"}]}]
DECODERS: dict[str, tuple[Any, Callable[[bytes], object]]] = {
    "chat usage": (CHAT, chat.usage_of_body),
    "chat event": (CHAT, chat.read_event),
    "chat as completion": (CHAT, translation.completion_body),
    "completion as chat": (TEXT, translation.chat_body),
    "completion chunk": (TEXT, lambda body: translation.chat_chunk(body, set())),
    "chat chunk": (CHAT, translation.completion_chunk),
    "chat as message": (CHAT, lambda body: anthropic.message_of(body, Usage(), [])),
    "refusal": (CHAT, body_refuses),
    "models": ({"data": [{"id": "m", "max_model_len": 5}]}, model_field.decode_models),
    "openai error": (ERROR, openai_error),
    "anthropic error": (ERROR, anthropic_error),
    "message": ({"content": [{"type": "text", "text": "x"}], "usage": {"input_tokens": 1}}, anthropic.read_message),
    "response usage": ({"usage": {"input_tokens": 1, "output_tokens": 2}, "output": []}, native.usage_of_body),
    "embeddings": ({"data": [{"index": i, "embedding": [0.5]} for i in range(3)]}, lambda b: rank_embedded(b, 2, 1)),
    "tgi": ({"generated_text": "x", "details": {"generated_tokens": 1, "finish_reason": "eos"}}, tgi.decode_whole),
    "tgi event": ({"token": {"id": 1, "text": "x"}, "generated_text": "x", "details": None}, tgi.decode_event),
    "tgi error": (ERROR, lambda body: tgi.refusal(body, 422)),
    "oip": (OIP, lambda body: oip.decode_response(body, None)),
    "oip object": (OIP, oip.check_object),
    "oip error": (ERROR, oip.error_of),
    "oip metadata": (METADATA, oip_bodies.decode_metadata),
    "oip index": ([{"name": "m", "version": "1", "state": "READY"}], oip_bodies.decode_index),
    "ovms": ({"m": {"model_version_status": [{"state": "AVAILABLE"}]}}, lambda body: dialects.listed_state(body, "m")),
    "tfserving status": (SERVABLE, rest.decode_status),
    "tfserving metadata": (SIGNATURES, lambda body: rest.model_metadata("m", [], rest.decode_metadata(body))),
    "kserve": ({"name": "m", "ready": True}, predict_v1_upstream.is_kserve_ready),
    "rows": ({"predictions": [{"y": 1.5, "t": "x"}]}, lambda b: predict_v1_upstream.decode_answer(b, OUTPUTS, "", "")),
    "undeclared rows": ({"predictions": [[1.5]]}, lambda b: predict_v1_upstream.decode_answer(b, [], "", "")),
    "rows as they are": ({"predictions": [1.5]}, predict_v1_upstream.check_response),
    "app": ({"y": [1.5], "t": ["x"]}, lambda body: app_tensors.decode(body, OUTPUTS, "object")),
    "app instances": ({"predictions": [{"y": 1.5, "t": "x"}]}, lambda b: app_tensors.decode(b, OUTPUTS, "instances")),
    "bentoml": (SERVICE, bentoml_schema.decode_schema),
    "bentoml error": (ERROR, bentoml_calls.error_of),
    "ray status": (APPLICATIONS, lambda body: ray_serve.status_of(body, "a")),
    "ray details": (APPLICATIONS, lambda body: ray_serve.details_of(body, "a")),
    "ray routes": ({"/": "a"}, lambda body: ray_serve.has_route(body, "/")),
    "torchserve error": (ERROR, torchserve.decode_error),
    "torchserve": (WORKERS, torchserve.decode_described),
}
EXTREMES = [b'{"predictions": [NaN, %d]}' % 10**30, b'{"predictions": [NaN, "\\ud800"]}', b'{"y": [%d, NaN]}' % 10**400]


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.data())
def test_any_answer_is_a_value_or_a_typed_error(name: str, data: st.DataObject) -> None:
    good, decode = DECODERS[name]
    try:
        decode(data.draw(bad_json(good) | st.sampled_from(EXTREMES)))
    except InferenceError:
        return
