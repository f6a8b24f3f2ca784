"""Loads the handler of an archive as TorchServe does, and calls it with the requests of a batch."""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from runtimes.tensor.interfaces import Array, Device, ModelFailed, ModelLoadError, Tensors
from runtimes.tensor.torchserve_api import offered, requests
from runtimes.tensor.torchserve_api.context import Context, RequestProcessor
from runtimes.tensor.torchserve_api.utilities import list_classes_from_module

MANIFEST: Final = "MAR-INF/MANIFEST.json"
_BASE: Final = "base_handler"
Handle = Callable[[Any, Context], Any]


def handler_of(folder: Path, name: str, batch_size: int, settings: Mapping[str, Any], device: Device) -> HandlerModel:
    """The model of an unpacked archive, initialized. Raises `ModelLoadError`, or what the handler raises."""
    manifest = json.loads((folder / MANIFEST).read_text())
    is_installed = offered.offer()
    context = Context(name, str(folder), manifest, batch_size, device.gpu, settings)
    written = str(manifest["model"].get("handler") or _BASE)
    path, _, function = written.partition(":")
    module = _module(folder, path.rpartition("/")[2].removesuffix(".py"), is_installed)
    if (entry := getattr(module, function or "handle", None)) is not None:
        handle: Handle = entry
        handle(None, context)
        return HandlerModel(handle, context)
    classes = list_classes_from_module(module)
    if len(classes) != 1 or not hasattr(classes[0], "handle"):
        raise ModelLoadError(f"handler `{written}` has neither a function `handle` nor one class with that method")
    handler: Any = classes[0]()
    handler.initialize(context)
    return HandlerModel(handler.handle, context)


def _module(folder: Path, name: str, is_installed: bool) -> Any:
    if (folder / f"{name}.py").is_file():
        return importlib.import_module(name)
    if not is_installed and not offered.has(name):
        raise ModelLoadError(
            f"the archive has no {name}.py, and this handler of TorchServe needs its packages: set `interpreter` to a"
            " Python that has torchserve and what the handler imports"
        )
    try:
        return importlib.import_module(f"ts.torch_handler.{name}")
    except ModuleNotFoundError as error:
        package = "pillow" if error.name == "PIL" else error.name
        raise ModelLoadError(f"handler `{name}` needs {package}, which is not installed") from None


class HandlerModel:
    """A handler. A batch is a list of requests, each with its own answer, headers and status."""

    def __init__(self, handle: Handle, context: Context) -> None:
        self._handle = handle
        self._context = context

    def infer(self, inputs: Tensors) -> Mapping[str, Array]:
        bodies = [bytes(body) for body in inputs["data"].ravel()]
        about = inputs["request"].ravel() if "request" in inputs else [None] * len(bodies)
        outputs = {name: np.full((len(bodies), 1), b"", object) for name in ("data", "response")}
        batch: list[dict[str, Any]] = []
        rows: list[int] = []
        processors: list[RequestProcessor] = []
        for row, (body, sent) in enumerate(zip(bodies, about, strict=True)):
            try:
                request = None if sent is None else json.loads(sent)
                parts = requests.parameters_of(body, request)
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                outputs["data"][row] = _failure(f"The request is malformed: {error}", 400, "BadRequestException")
                outputs["response"][row] = _about(400, {})
                continue
            headers = {part.name: {"content-type": part.content_type} for part in parts}
            processors.append(RequestProcessor({**headers, **(request or {}).get("headers", {})}))
            batch.append({part.name: requests.value_of(part) for part in parts})
            rows.append(row)
        self._context.request_processor = processors
        self._context.request_ids = {index: str(uuid.uuid4()) for index in range(len(batch))}
        for index, answer in enumerate(self._answers(batch) if batch else ()):
            status, _ = self._context.get_response_status(index)
            outputs["data"][rows[index]] = answer
            outputs["response"][rows[index]] = _about(status, self._context.get_response_headers(index))
        return outputs

    def _answers(self, batch: list[dict[str, Any]]) -> list[bytes]:
        """Raises `ModelFailed`. An error that is for the client of a single request is its answer."""
        try:
            answers = self._handle(batch, self._context)
        except Exception as error:
            message, code = getattr(error, "message", None), getattr(error, "error_code", None)
            if len(batch) > 1 or not isinstance(message, str) or not isinstance(code, int):
                raise  # each half of the batch is computed again
            self._context.set_response_status(code, message)
            return [_failure(message, code)]
        if not isinstance(answers, list) or len(answers) != len(batch):
            count = f"{len(answers)} answers" if isinstance(answers, list) else f"a {type(answers).__name__}"
            raise ModelFailed(f"the handler got {len(batch)} requests and returned {count}")
        try:
            return [requests.encoded(answer) for answer in answers]
        except TypeError:
            raise ModelFailed("the handler returned a value that has no form as JSON") from None

    def close(self) -> None:
        return


def _about(status: int, headers: Mapping[str, str]) -> bytes:
    return json.dumps({"status": status, "headers": dict(headers)}, default=str).encode()


def _failure(message: str, code: int, kind: str = "InternalServerException") -> bytes:
    return json.dumps({"code": code, "type": kind, "message": message}, indent=2).encode() + b"\n"
