"""Repositories of Triton's own Python models, and requests to them over every wire.

The models are unchanged: `triton_models` has files of `qa/python_models` and `qa/L0_backend_python` of Triton's server
and of `examples` of its Python backend, with their licence. As in Triton's own scripts, a name in a configuration that
is not the folder's is removed.
"""

import queue
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

MODELS = Path(__file__).parent / "triton_models"
_DLPACK = {f"dlpack_{name}" for name in ("add_sub", "io_identity", "square")}
TORCH = frozenset({"bls_async", "decoupled_bls", "identity_bf16", "pytorch", *_DLPACK})
"""Models that import PyTorch, which the environment of the real Triton lacks."""
_PARAMETERS = {f"response_parameters{suffix}" for suffix in ("", "_bls", "_decoupled")}
NEWER = frozenset({"bls_parameters", "decoupled_bls_cancel", *_PARAMETERS})
"""Models for releases of Triton after 2.51."""
FAILING = frozenset({"auto_complete_error", "init_error", "init_args"})
"""Models that cannot be loaded, or only from a certain folder."""
NAMES = tuple(sorted(folder.name for folder in MODELS.iterdir() if folder.is_dir()))
SECONDS = 60
Array = npt.NDArray[Any]


def repository(folder: Path, names: Iterable[str]) -> Path:
    """The models in Triton's layout."""
    for name in names:
        shutil.copytree(MODELS / name, folder / name)
        if (config := folder / name / "config.pbtxt").exists():
            text = config.read_text()
            if f'name: "{name}"' not in text:
                config.write_text(re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE))
    return folder


@dataclass(frozen=True, slots=True)
class Outcome:
    """One response, in a form that is equal for equal responses."""

    outputs: Mapping[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    error: tuple[str, str] | None = None


def unary_http(address: str, model: str, arrays: Mapping[str, Array], **more: Any) -> Outcome:
    """The response to a request over HTTP."""
    with tritonclient.http.InferenceServerClient(
        address, connection_timeout=SECONDS, network_timeout=SECONDS
    ) as client:
        try:
            result = client.infer(model, [_input(tritonclient.http, *pair) for pair in arrays.items()], **more)
        except InferenceServerException as error:
            return _failed(error)
    response = result.get_response()
    names = [output["name"] for output in response["outputs"]]
    return Outcome({name: _output(result.as_numpy(name)) for name in names}, response.get("parameters", {}))


def unary_grpc(address: str, model: str, arrays: Mapping[str, Array], **more: Any) -> Outcome:
    """The response to a request over gRPC."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        inputs = [_input(tritonclient.grpc, *pair) for pair in arrays.items()]
        try:
            result = client.infer(model, inputs, client_timeout=SECONDS, **more)
        except InferenceServerException as error:
            return _failed(error)
    return _of_message(result)


def stream(
    address: str, requests: Iterable[tuple[str, Mapping[str, Array]]], headers: Mapping[str, str] | None = None
) -> list[list[Outcome]]:
    """The responses to each request of a gRPC stream, up to its final response or its error."""
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    requests = list(requests)
    outcomes: list[list[Outcome]] = [[] for _ in requests]
    with tritonclient.grpc.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: results.put((result, error)), headers=headers)
        for number, (model, arrays) in enumerate(requests):
            inputs = [_input(tritonclient.grpc, *pair) for pair in arrays.items()]
            client.async_stream_infer(model, inputs, request_id=str(number), enable_empty_final_response=True)
        ended = 0
        while ended < len(requests):
            result, error = results.get(timeout=SECONDS)
            if error is not None:  # without the request's id in older releases: tests send failing requests alone
                outcomes[0].append(_failed(error))
                ended += 1
                continue
            message = result.get_response()
            final = message.parameters["triton_final_response"].bool_param
            outcomes[int(message.id)].append(_of_message(result))
            ended += final
        client.stop_stream(cancel_requests=True)
    return outcomes


def _of_message(result: Any) -> Outcome:
    message = result.get_response()
    parameters = {
        name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in message.parameters.items()
    }
    return Outcome({output.name: _output(result.as_numpy(output.name)) for output in message.outputs}, parameters)


def _output(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    content = b"\0".join(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()
    return str(array.dtype), array.shape, content


def _failed(error: InferenceServerException) -> Outcome:
    """Without the traceback's places, the number of the copy, and the request that Triton names."""
    message = str(error.message()).partition("\n\nAt:")[0]
    message = re.sub(r"\[request id: [^]]*\] ", "", message)
    return Outcome(error=(str(error.status()), re.sub(r"for model '(\w+?)_0_\d+'", r"for model '\1'", message)))


def _input(wire: Any, name: str, array: Array) -> Any:
    tensor = wire.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


def floats(*shape: int) -> Array:
    return np.linspace(-1, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def text(value: str, *shape: int) -> Array:
    return np.full(shape, value, object)
