"""The same questions over gRPC."""

from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.servers.calls import Call, call, stream
from tests.servers.cases.inference import BLOBS, INTS, NUMBERS, packed

ONES = b"\x01\0\0\0" * 16


def _tensor(name: str, datatype: str, shape: list[int], **contents: Any) -> Any:
    made = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if contents:
        made.contents.CopyFrom(pb.InferTensorContents(**contents))
    return made


def _request(model: str, *inputs: Any, raw: list[bytes] | None = None, **more: Any) -> Any:
    return pb.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw or [], **more)


def _infer(model: str, *inputs: Any, **more: Any) -> list[Call]:
    return [call("ModelInfer", _request(model, *inputs, **more))]


def _repeat(*numbers: int, **more: Any) -> Any:
    return _request("repeat", _tensor("IN", "INT32", [len(numbers)], int_contents=numbers), **more)


def _step(sequence: int, number: int, **flags: bool) -> Any:
    parameters = {"sequence_id": pb.InferParameter(int64_param=sequence)}
    parameters |= {f"sequence_{name}": pb.InferParameter(bool_param=value) for name, value in flags.items()}
    return _request("accumulate", _tensor("INPUT", "INT32", [1, 1], int_contents=[number]), parameters=parameters)


SHAPED = [_tensor(f"INPUT{i}", "INT32", [1, 16]) for i in (0, 1)]
TYPED = [_tensor(f"INPUT{i}", "INT32", [1, 16], int_contents=range(16)) for i in (0, 1)]
FIELDS = {"BOOL": "bool", "UINT8": "uint", "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64", "FP32": "fp32"}
FIELDS |= {"INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64", "FP64": "fp64", "BYTES": "bytes"}


def _typed(datatype: str) -> Any:
    given: Any = NUMBERS[datatype]
    values = [one.encode() if isinstance(one, str) else one for one in given]
    return _tensor(f"IN_{datatype}", datatype, [2], **{f"{FIELDS[datatype]}_contents": values})


def _output(name: str, **parameters: Any) -> Any:
    made = {key: pb.InferParameter(**value) for key, value in parameters.items()}
    return pb.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=made)


EMPTY_FINAL = {"triton_enable_empty_final_response": pb.InferParameter(bool_param=True)}

RPCS: dict[str, list[Call]] = {
    "live and ready": [call("ServerLive"), call("ServerReady")],
    "model ready": [call("ModelReady", pb.ModelReadyRequest(name="add_sub"))],
    "version ready": [call("ModelReady", pb.ModelReadyRequest(name="add_sub", version="1"))],
    "unknown model ready": [call("ModelReady", pb.ModelReadyRequest(name="nobody"))],
    "server": [call("ServerMetadata")],
    "model": [call("ModelMetadata", pb.ModelMetadataRequest(name="add_sub"))],
    "unknown model": [call("ModelMetadata", pb.ModelMetadataRequest(name="nobody"))],
    "unknown version": [call("ModelMetadata", pb.ModelMetadataRequest(name="add_sub", version="9"))],
    "version that is no number": [call("ModelMetadata", pb.ModelMetadataRequest(name="add_sub", version="latest"))],
    "config": [call("ModelConfig", pb.ModelConfigRequest(name="add_sub"))],
    "config with sequences": [call("ModelConfig", pb.ModelConfigRequest(name="accumulate"))],
    "config of an unknown model": [call("ModelConfig", pb.ModelConfigRequest(name="nobody"))],
    "stats of an unknown model": [call("ModelStatistics", pb.ModelStatisticsRequest(name="nobody"))],
    "index": [call("RepositoryIndex")],
    "typed contents": _infer("add_sub", *TYPED),
    "raw contents": _infer("add_sub", *SHAPED, raw=[INTS, ONES]),
    "an id": _infer("add_sub", *TYPED, id="a name"),
    "one output": _infer("add_sub", *TYPED, outputs=[_output("OUTPUT1")]),
    "every datatype raw": _infer(
        "datatypes", *(_tensor(f"IN_{kind}", kind, [2]) for kind in BLOBS), raw=list(BLOBS.values())
    ),
    "every datatype typed but FP16": [
        call("ModelInfer", _request("datatypes", *(_typed(kind) for kind in NUMBERS), _tensor("IN_FP16", "FP16", [2])))
    ],
    "FP16 typed": _infer("datatypes", _tensor("IN_FP16", "FP16", [2], fp32_contents=[0.5, 1])),
    "classes": _infer("add_sub", *TYPED, outputs=[_output("OUTPUT0", classification={"int64_param": 2})]),
    "typed and raw": _infer("add_sub", *TYPED, raw=[INTS, ONES]),
    "one typed, one raw": _infer("add_sub", TYPED[0], SHAPED[1], raw=[ONES]),
    "fewer raw contents than inputs": _infer("add_sub", *SHAPED, raw=[INTS]),
    "more raw contents than inputs": _infer("add_sub", *SHAPED, raw=[INTS, ONES, ONES]),
    "no contents at all": _infer("add_sub", *SHAPED),
    "contents of another datatype": _infer(
        "add_sub", _tensor("INPUT0", "INT32", [1, 16], fp32_contents=range(16)), TYPED[1]
    ),
    "too few contents": _infer("add_sub", _tensor("INPUT0", "INT32", [1, 16], int_contents=[1]), TYPED[1]),
    "raw too short": _infer("add_sub", *SHAPED, raw=[INTS[:60], ONES]),
    "raw too long": _infer("add_sub", *SHAPED, raw=[INTS + b"\0", ONES]),
    "300 for UINT8": _infer("datatypes", _tensor("IN_UINT8", "UINT8", [1], uint_contents=[300])),
    "BYTES past the end": _infer("text", _tensor("TEXT", "BYTES", [1, 1]), raw=[b"\xff\0\0\0abc"]),
    "bytes that are no UTF-8": _infer("text", _tensor("TEXT", "BYTES", [1, 1]), raw=[packed(b"\xff\0\xfe")]),
    "negative shape": _infer("add_sub", _tensor("INPUT0", "INT32", [-1, 16], int_contents=range(16)), TYPED[1]),
    "no rows": _infer("add_sub", *(_tensor(f"INPUT{i}", "INT32", [0, 16]) for i in (0, 1)), raw=[b"", b""]),
    "unknown datatype": _infer("add_sub", _tensor("INPUT0", "INT33", [1, 16]), SHAPED[1], raw=[INTS, ONES]),
    "missing input": _infer("add_sub", TYPED[0]),
    "unknown output": _infer("add_sub", *TYPED, outputs=[_output("OUTPUT9")]),
    "infer by an unknown model": _infer("nobody", *TYPED),
    "infer by an unknown version": _infer("add_sub", *TYPED, model_version="9"),
    "a model that raises": _infer("picky", _tensor("X", "FP32", [1, 1], fp32_contents=[-1])),
    "bytes that are no message": [call("ModelInfer", b"\xff\xff\xff")],
    "no message": [call("ModelInfer", b"")],
    "a decoupled model, unary": [call("ModelInfer", _repeat(1, 2))],
    "a stream of one": [stream(_repeat(7, 8, 9))],
    "a stream of none": [stream(_repeat())],
    "a stream with an empty end": [stream(_repeat(7, parameters=EMPTY_FINAL))],
    "a stream with nothing but its end": [stream(_repeat(parameters=EMPTY_FINAL))],
    "a stream with ids": [stream(_repeat(1, id="first"))],
    "a stream that fails later": [stream(_repeat(7, -1))],
    "a stream to a model that is not decoupled": [stream(_request("add_sub", *TYPED))],
    "a stream to an unknown model": [stream(_request("nobody", *TYPED))],
    "a stream that names what failed": [
        stream(_request("nobody", *TYPED, id="first")),
        stream(_request("add_sub", TYPED[0], id="second")),
    ],
    "a stream with a bad request": [stream(_request("add_sub", TYPED[0]))],
    "a sequence in a stream": [stream(_step(201, 1, start=True), _step(201, 2), _step(201, 3, end=True))],
    "a sequence in calls": [
        call("ModelInfer", _step(202, 1, start=True)),
        call("ModelInfer", _step(202, 2, end=True)),
        call("ModelInfer", _step(202, 3)),
    ],
    "an empty stream": [Call("ModelStreamInfer", [], "ModelStreamInferResponse")],
    "load and unload of an unknown model": [
        call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nobody")),
        call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="nobody")),
    ],
    "unload and load": [
        call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="slow")),
        call("ModelReady", pb.ModelReadyRequest(name="slow")),
        call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="slow")),
        call("ModelReady", pb.ModelReadyRequest(name="slow")),
    ],
    "settings": [call("TraceSetting"), call("LogSettings")],
    "regions of shared memory": [call("SystemSharedMemoryStatus"), call("CudaSharedMemoryStatus")],
    "no such method": [Call("ModelDream", [b""], "ModelInferResponse")],
}
