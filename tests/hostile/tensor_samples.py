"""Servers of tensors, and of apps."""

from typing import Any

from adapters.requests import AppRequest, ModelRequest
from adapters.wire.oip import request_view as oip_view
from adapters.wire.tfserving import predict_v1_view
from tests.hostile.sample import EVENTS, JSON, Sample, dump, events

TENSOR = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
METADATA = {"name": "m", "versions": ["1"], "platform": "p", "inputs": [TENSOR], "outputs": [{**TENSOR, "name": "y"}]}
INFERENCE = dump(inputs=[{**TENSOR, "data": [1, 2, 3, 4]}])
ANSWERED = dump(model_name="m", model_version="1", outputs=[{**TENSOR, "name": "y", "data": [1.5, 2.5, 3.5, 4.5]}])


def infer(stream: bool = False) -> ModelRequest:
    return oip_view.request_of(INFERENCE, model="m", version="", kind="infer_stream" if stream else "infer")


def outputs(**changes: Any) -> bytes:
    return dump(model_name="m", outputs=[{**TENSOR, "name": "y", "data": [1, 2, 3, 4], **changes}])


OIP_HTTP = [
    Sample(
        "infer",
        infer,
        ANSWERED,
        wrong={
            "an error inside": dump(error="no"),
            "no outputs": dump(model_name="m"),
            "outputs of another kind": dump(model_name="m", outputs=7),
            "too little data": outputs(data=[1]),
            "data of another kind": outputs(data=["a", "b", "c", "d"]),
            "a shape below nothing": outputs(shape=[-1, 4]),
            "a datatype that nobody knows": outputs(datatype="FP4"),
            "bytes that are not there": outputs(data=[], parameters={"binary_data_size": 16}),
        },
    ),
    Sample(
        "infer stream",
        lambda: infer(stream=True),
        events(ANSWERED, ANSWERED),
        EVENTS,
        open_ended=True,
        wrong={"an error inside": events(dump(error="no")), "not a stream": ANSWERED},
    ),
]

DECLARED = {"inputs": [TENSOR], "outputs": [{**TENSOR, "name": "y"}]}
ROWS = dump(y=[[1.5, 2.5, 3.5, 4.5]])


def app(path: str = "/do") -> ModelRequest:
    return AppRequest(model="m", path=path, body=b"{}", content_type=JSON)


OF_DECLARED = {
    "no such output": dump(z=[1]),
    "too little data": dump(y=[[1]]),
    "data of another kind": dump(y=[["a", "b", "c", "d"]]),
    "an error inside": dump(error="no"),
}
HTTP_APP = [
    Sample("app", app, b"whatever it likes to say, and more", "text/plain", opaque=True, open_ended=True),
    Sample("infer", infer, ROWS, options={**DECLARED, "path": "/do"}, wrong=OF_DECLARED),
]

METHOD = {"name": "m", "route": "/m", "input": {"type": "object", "properties": {
    "x": {"type": "tensor", "dtype": "float32", "shape": [-1, 4]},
}}, "output": {"type": "tensor", "dtype": "float32", "shape": [-1, 4]}}  # fmt: skip
TORCHSERVE = [
    Sample("app", lambda: app(""), b"whatever it likes to say, and more", "text/plain", opaque=True, open_ended=True),
    Sample("infer", infer, ROWS, options=DECLARED, wrong=OF_DECLARED),
]

RAY_SERVE = TORCHSERVE[:1]

BENTOML = [
    Sample(
        "infer",
        infer,
        b"[[1.5, 2.5, 3.5, 4.5]]",
        good={"/schema.json": dump(name="S", type="service", routes=[METHOD])},
        wrong={
            "data of another kind": b'[["a"]]',
            "rows of several lengths": b"[[1, 2], [3]]",
            "another datatype": b'{"a": 1}',
        },
    ),
]


def signature(name: str) -> dict[str, Any]:
    shape = {"dim": [{"size": "-1", "name": ""}, {"size": "4", "name": ""}], "unknown_rank": False}
    return {name: {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": f"{name}:0"}}


SERVING = {"inputs": signature("x"), "outputs": signature("y"), "method_name": "tensorflow/serving/predict"}
PREDICT = Sample(
    "predict",
    lambda: predict_v1_view.request_of(dump(instances=[[1, 2, 3, 4]]), model="m", version=""),
    dump(predictions=[[1.5, 2.5, 3.5, 4.5]]),
    lenient=frozenset({"json_with_nan"}),
    wrong={"an error inside": dump(error="no")},
)
TFSERVING = [
    PREDICT,
    Sample(
        "infer",
        infer,
        dump(outputs=[[1.5, 2.5, 3.5, 4.5]]),
        good={
            "/v1/models/m/metadata": dump(
                model_spec={"name": "m", "signature_name": "", "version": "1"},
                metadata={"signature_def": {"signature_def": {"serving_default": SERVING}}},
            ),
        },
        wrong={
            "an error inside": dump(error="no"),
            "no outputs": dump(z=1),
            "data of another kind": dump(outputs=[["a", "b", "c", "d"]]),
            "rows of several lengths": dump(outputs=[[1, 2], [3]]),
        },
    ),
]

KSERVE_V1 = [
    Sample(
        "infer",
        infer,
        dump(predictions=[[1.5, 2.5, 3.5, 4.5]]),
        options=DECLARED,
        wrong={
            "an error inside": dump(error="no"),
            "no predictions": dump(z=1),
            "data of another kind": dump(predictions=[["a", "b", "c", "d"]]),
            "too little data": dump(predictions=[[1]]),
        },
    ),
    PREDICT,
]
