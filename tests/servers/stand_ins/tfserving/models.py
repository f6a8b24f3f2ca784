"""SavedModels by name and version, their labels, and what their signatures compute."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))
SERVING = "serving_default"
INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 3, 5, 9, 12, 13
AVAILABLE, END = 30, 50


class Failure(Exception):
    """A status of gRPC other than OK."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Version:
    """One loaded SavedModel."""

    def __init__(self, folder: Path) -> None:
        graph = tf.Graph()
        self._graph = graph
        self._session = tf.compat.v1.Session(graph=graph)
        with graph.as_default():
            meta = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
        self.signatures: dict[str, Any] = dict(meta.signature_def)

    def signature(self, name: str) -> Any:
        name = name or SERVING
        if name not in self.signatures:
            raise Failure(INVALID_ARGUMENT, f'Serving signature name: "{name}" not found in signature def')
        return self.signatures[name]

    def run(self, signature: Any, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        """Arrays in, arrays out."""
        if inputs.keys() != signature.inputs.keys():
            extra = sorted(inputs.keys() - signature.inputs.keys())
            missing = sorted(signature.inputs.keys() - inputs.keys())
            raise Failure(
                INVALID_ARGUMENT,
                f"input size does not match signature: {len(inputs)}!={len(signature.inputs)} "
                f"len({{{','.join(inputs)}}}) != len({{{','.join(signature.inputs)}}}). "
                f"Sent extra: {{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}.",
            )
        for name in outputs:
            if name not in signature.outputs:
                raise Failure(INVALID_ARGUMENT, f"output tensor alias not found in signature: {name}")
        feeds = {}
        for name, array in inputs.items():
            info = signature.inputs[name]
            dtype = tf.dtypes.as_dtype(info.dtype)
            given = tf.dtypes.as_dtype(array.dtype)
            if given != dtype:
                raise Failure(INVALID_ARGUMENT, f"{name} expects {dtype.name} but {given.name} is provided")
            tensor = self._graph.get_tensor_by_name(info.name)
            if not tensor.shape.is_compatible_with(array.shape):
                raise Failure(INVALID_ARGUMENT, f"You must feed a value for placeholder tensor of shape {tensor.shape}")
            feeds[tensor] = array
        names = outputs or sorted(signature.outputs)
        try:
            values = self._session.run([signature.outputs[name].name for name in names], feeds)
        except tf.errors.OpError as error:
            raise Failure(error.error_code, error.message) from None
        return {name: np.asarray(array) for name, array in zip(names, values, strict=True)}

    def of_examples(self, signature: Any, method: str, examples: list[bytes]) -> dict[str, Any]:
        """The outputs of a signature for examples."""
        if signature.method_name != method:
            kind = "classification" if method == CLASSIFY else "regression"
            was = signature.method_name
            raise Failure(INVALID_ARGUMENT, f"Expected {kind} signature method_name to be {method}. Was: {was}")
        if not examples:
            raise Failure(INVALID_ARGUMENT, "Input is empty.")
        return self.run(signature, {"inputs": np.array(examples, dtype=object)}, [])

    def close(self) -> None:
        self._session.close()


class Models:
    """The models of a server. A configuration is applied whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, dict[int, Version]] = {}
        self._gone: dict[str, set[int]] = {}
        self._labels: dict[str, dict[str, int]] = {}

    def configure(self, config: Any) -> None:
        """A `ModelServerConfig`: whatever it does not name is unloaded."""
        requested: dict[str, dict[int, Path]] = {}
        labels: dict[str, dict[str, int]] = {}
        for model in config.model_config_list.config:
            requested[model.name] = _versions(model)
            labels[model.name] = dict(model.version_labels)
            for label, number in model.version_labels.items():
                if number not in requested[model.name]:
                    raise Failure(
                        FAILED_PRECONDITION,
                        f"Request to assign label {label} to version {number} of model {model.name}, "
                        "which is not currently available for inference",
                    )
        loaded = {
            name: {number: self._load(name, number, path) for number, path in versions.items()}
            for name, versions in requested.items()
        }
        with self._lock:
            for name, versions in self._loaded.items():
                gone = versions.keys() - loaded.get(name, {}).keys()
                self._gone.setdefault(name, set()).update(gone)
            for name, versions in loaded.items():
                self._gone.setdefault(name, set()).difference_update(versions)
            self._loaded, self._labels = loaded, labels

    def _load(self, name: str, number: int, path: Path) -> Version:
        loaded = self._loaded.get(name, {}).get(number)
        return loaded or Version(path)

    def resolve(self, spec: Any) -> tuple[int, Version]:
        """The version that a `ModelSpec` is for."""
        versions = self._loaded.get(spec.name, {})
        if not spec.name:
            raise Failure(INVALID_ARGUMENT, "ModelSpec has no name specified.")
        number = self.number(spec)
        if number is None:
            if not versions:
                raise Failure(NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
            number = max(versions)
        if number not in versions:
            raise Failure(NOT_FOUND, f"Servable not found for request: Specific({spec.name}, {number})")
        return number, versions[number]

    def number(self, spec: Any) -> int | None:
        """None where the newest is meant."""
        if spec.HasField("version"):
            return int(spec.version.value)
        if spec.version_label:
            number = self._labels.get(spec.name, {}).get(spec.version_label)
            if number is None:
                raise Failure(INVALID_ARGUMENT, f"Unrecognized servable version label: {spec.version_label}")
            return number
        return None

    def states(self, spec: Any) -> list[tuple[int, int]]:
        """Versions with their states, the newest first."""
        if not spec.name:
            raise Failure(INVALID_ARGUMENT, "Missing ModelSpec")
        number = self.number(spec)
        listed = [(each, AVAILABLE) for each in self._loaded.get(spec.name, {})]
        listed += [(each, END) for each in self._gone.get(spec.name, ())]
        listed = [one for one in listed if number is None or one[0] == number]
        if not listed:
            of = f"model {spec.name}" if number is None else f"version {number} of model {spec.name}"
            raise Failure(
                NOT_FOUND, f"Could not find any versions of {of}" if number is None else f"Could not find {of}"
            )
        return sorted(listed, reverse=True)


def _versions(model: Any) -> dict[int, Path]:
    base = Path(model.base_path)
    if not base.is_absolute():
        raise Failure(
            INVALID_ARGUMENT, f"Expected model {model.name} to have an absolute path or URI; got base_path()={base}"
        )
    there = {int(path.name): path for path in base.glob("*") if path.name.isdigit()} if base.is_dir() else {}
    policy = model.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return there
    if kind == "specific":
        return {number: there[number] for number in policy.specific.versions if number in there}
    count = policy.latest.num_versions or 1
    return dict(sorted(there.items(), reverse=True)[:count])
