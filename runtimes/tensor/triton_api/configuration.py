"""`ModelConfig` of Triton's Python API, which `auto_complete_config` receives and returns."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.configuration.table import DATATYPES
from runtimes.tensor.interfaces import ModelLoadError

_INPUT: Final = ("name", "data_type", "dims", "optional")
_OUTPUT: Final = ("name", "data_type", "dims")
_WORDS: Final = {triton: name for name, triton in DATATYPES.items()}


class BackendModelConfig:
    """A configuration that a model completes. Every method raises ValueError if it contradicts the file."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)
        for part in ("input", "output"):
            self._model_config.setdefault(part, [])
        self._model_config.setdefault("max_batch_size", 0)

    def as_dict(self) -> dict[str, Any]:
        return self._model_config

    @property
    def _place(self) -> str:
        return f"in auto-complete-config function for model '{self._model_config['name']}'"

    def set_max_batch_size(self, max_batch_size: int) -> None:
        written = self._model_config["max_batch_size"]
        if written > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {written}, but {self._place} specified max_batch_size"
                f" {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but {self._place} tries to set"
                    " scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> None:
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(f"model transaction property {self._place} contains property other than 'decoupled'.")
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        decoupled = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", decoupled) != decoupled:
            raise ValueError(
                f"trying to change decoupled property {self._place}, which is already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = decoupled

    def add_input(self, input: Mapping[str, Any]) -> None:
        """Add an input, or complete it."""
        self._add("input", input, _INPUT)

    def add_output(self, output: Mapping[str, Any]) -> None:
        """Add an output, or complete it."""
        self._add("output", output, _OUTPUT)

    def _add(self, kind: str, tensor: Mapping[str, Any], properties: tuple[str, ...]) -> None:
        unknown = next((key for key in tensor if key not in properties), None)
        if unknown is not None:
            words = ", ".join(f"'{name}'" for name in properties[:-1])
            raise ValueError(
                f"{kind} '{tensor.get('name')}' {self._place} contains property other than {words} and"
                f" '{properties[-1]}'."
            )
        for name in ("name", "data_type", "dims"):
            if name not in tensor:
                raise ValueError(f"{kind} '{tensor.get('name', '')}' {self._place} is missing '{name}' property.")
        for written in self._model_config[kind]:
            if written["name"] == tensor["name"]:
                self._complete(kind, written, tensor)
                return
        self._model_config[kind].append(dict(tensor))

    def _complete(self, kind: str, written: dict[str, Any], tensor: Mapping[str, Any]) -> None:
        model, name = self._model_config["name"], tensor["name"]
        datatype = written.get("data_type", "TYPE_INVALID")
        if datatype not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{model}', configuration expects datatype {datatype} for {kind} '{name}', model"
                f" provides {tensor['data_type']}"
            )
        for part in ("dims", "optional"):
            if part in tensor and written.get(part) and list_of(written[part]) != list_of(tensor[part]):
                raise ValueError(
                    f"model '{model}', tensor '{name}': the model expects {part} {tensor[part]} but the model"
                    f" configuration specifies {part} {written[part]}"
                )
        written.update(tensor)


def list_of(value: Any) -> Any:
    """A list as integers: Triton's JSON may have other types of numbers."""
    return [int(number) for number in value] if isinstance(value, list | tuple) else value


def completed(config: ModelConfig, document: Mapping[str, Any]) -> ModelConfig:
    """The configuration with the model's additions. Raises `ModelLoadError`."""
    batching = config.dynamic_batching
    if batching is None and "dynamic_batching" in document:
        batching = DynamicBatching()
    return dataclasses.replace(
        config,
        max_batch_size=int(document["max_batch_size"]),
        inputs=tuple(_spec("input", tensor, config.input(tensor["name"])) for tensor in document["input"]),
        outputs=tuple(_spec("output", tensor, config.output(tensor["name"])) for tensor in document["output"]),
        dynamic_batching=batching,
        decoupled=bool(document.get("model_transaction_policy", {}).get("decoupled", False)),
    )


def _spec(kind: str, tensor: Mapping[str, Any], written: TensorSpec | None) -> TensorSpec:
    datatype = _WORDS.get(tensor["data_type"])
    if datatype is None:
        raise ModelLoadError(f"{kind} `{tensor['name']}` of auto_complete_config has no data_type of Triton's")
    dims = tuple(int(length) for length in tensor["dims"])
    if written is None:
        return TensorSpec(tensor["name"], datatype, dims, optional=bool(tensor.get("optional", False)))
    optional = bool(tensor.get("optional", written.optional))
    return dataclasses.replace(written, datatype=datatype, dims=dims, optional=optional)
