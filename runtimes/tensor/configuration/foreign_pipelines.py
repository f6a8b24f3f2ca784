"""Pipelines of Hugging Face in the files of MLflow and MLServer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runtimes.tensor.configuration.foreign_files import local, part, refused, text
from runtimes.tensor.configuration.hugging_face import BACKEND
from runtimes.tensor.configuration.model_config import ModelConfig

_COMPONENTS: Final = {"tokenizer": "tokenizer", "image_processor": "processor", "feature_extractor": "processor"}
"""Our parameters by the names of MLflow's components."""
_TUNING: Final = ("device", "inter_op_threads", "intra_op_threads")
"""MLServer's settings that change no answer: instances have them here."""


def of_mlflow(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    """The flavor `transformers`: the model in a folder, and each component in one below `components`."""
    if "peft_adaptor" in fields:
        raise refused(path, "the flavor transformers has a `peft_adaptor`: merge the adapter into the model")
    folder = text(path, fields, "model_binary", "")
    if not folder and text(path, fields, "source_model_revision", ""):
        raise refused(path, "the weights are not in the folder: save the model with save_pretrained=True")
    names = fields.get("components") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refused(path, "`components` must be a list of names")
    parameters = {"task": text(path, fields, "task", "")}
    parameters |= {_COMPONENTS[name]: f"components/{name}" for name in names if name in _COMPONENTS}
    # MLflow's first releases had no field for the folder.
    folder = local(path, folder or "pipeline")
    return replace(config, backend=BACKEND, default_model_filename=folder, parameters=_given(parameters))


def of_mlserver(
    path: Path, parameters: Mapping[str, Any], config: ModelConfig, uri: str
) -> tuple[ModelConfig, list[str]]:
    """The settings in `parameters.extra`, and the names of those without an effect. `uri` is the model's folder."""
    extra = part(path, parameters, "extra")
    if extra.get("optimum_model"):
        raise refused(path, "`optimum_model` is not served: serve its model.onnx with the backend onnx")
    if extra.get("framework") not in (None, "pt"):
        raise refused(path, "`framework` must be pt: only models of PyTorch are served")
    given = ("task", "pretrained_model", "pretrained_tokenizer", "optimum_model", "framework", *_TUNING)
    if more := sorted(map(str, set(extra) - set(given))):
        raise refused(path, f"`{more[0][:100]}` in `extra` is not read here: leave it out")
    folder = local(path, text(path, extra, "pretrained_model", "")) or uri
    made = {
        "task": text(path, extra, "task", ""),
        "tokenizer": local(path, text(path, extra, "pretrained_tokenizer", "")),
    }
    unused = [name for name in _TUNING if name in extra]
    unused += [name for name in parameters if name not in ("uri", "extra")]
    return replace(config, default_model_filename=folder, parameters=_given(made)), unused


def _given(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}
