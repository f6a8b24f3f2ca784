"""The served model, run by OpenVINO, and the refusals of its requests."""

from typing import Any, NoReturn

import numpy as np
import openvino as ov
from openvino import opset13 as ops

TYPES = {"INT32": np.dtype("<i4"), "FP32": np.dtype("<f4")}
OF_OPENVINO = {"i32": "INT32", "f32": "FP32"}


class Refused(Exception):
    """An error that is sent instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refuse(status: int, message: str) -> NoReturn:
    raise Refused(status, message)


def add_sub() -> ov.CompiledModel:
    """Two rows of sixteen, their sum and their difference."""
    one, other = (ops.parameter([-1, 16], np.int32, name=f"INPUT{i}") for i in (0, 1))
    results = [ops.result(ops.add(one, other)), ops.result(ops.subtract(one, other))]
    model = ov.Model(results, [one, other], "add_sub")
    for kind, ports in (("INPUT", model.inputs), ("OUTPUT", model.outputs)):
        for i, port in enumerate(ports):
            port.set_names({f"{kind}{i}"})
    return ov.compile_model(model, "CPU")


class Models:
    """The served models, and further models of its configuration file, which a reload serves too."""

    def __init__(self) -> None:
        self._served = {"add_sub": add_sub()}
        self._written = {"late": add_sub()}

    def named(self, name: str, version: str = "") -> ov.CompiledModel:
        if name not in self._served:
            refuse(404, "Model with requested name is not found")
        if version not in ("", "1"):
            refuse(404, "Model with requested version is not found")
        return self._served[name]

    def reload(self) -> bool:
        """Whether there was anything new."""
        new = self._written.keys() - self._served.keys()
        self._served.update(self._written)
        return bool(new)

    def status(self) -> dict[str, Any]:
        state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": "OK"}}
        return {name: {"model_version_status": [state]} for name in self._served}

    def infer(self, name: str, version: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        model = self.named(name, version)
        for port in model.inputs:
            given, shape = inputs.get(port.any_name), list(port.partial_shape)
            if given is None:
                refuse(400, f"Missing input with specific name - Required input: {port.any_name}")
            if given.dtype != TYPES[OF_OPENVINO[port.element_type.get_type_name()]]:
                refuse(400, f"Invalid input precision - Input name: {port.any_name}")
            if len(shape) != given.ndim or any(
                dim.is_static and dim.get_length() != it for dim, it in zip(shape, given.shape, strict=True)
            ):
                refuse(400, f"Invalid input shape - Input name: {port.any_name}")
        if len(inputs) != len(model.inputs):
            refuse(400, "Invalid number of inputs")
        results = model({name: np.ascontiguousarray(value) for name, value in inputs.items()})
        return {port.any_name: results[port] for port in model.outputs}

    def described(self, name: str, version: str = "") -> dict[str, Any]:
        model = self.named(name, version)
        metadata = {"name": name, "versions": ["1"], "platform": "OpenVINO"}
        return {**metadata, "inputs": _ports(model.inputs), "outputs": _ports(model.outputs)}


def _ports(ports: Any) -> list[dict[str, Any]]:
    shapes = [[dim.get_length() if dim.is_static else -1 for dim in port.partial_shape] for port in ports]
    return [
        {"name": port.any_name, "datatype": OF_OPENVINO[port.element_type.get_type_name()], "shape": shape}
        for port, shape in zip(ports, shapes, strict=True)
    ]
