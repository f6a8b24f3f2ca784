"""The inputs and outputs of each task. Names of inputs are those of MLServer's runtime for Hugging Face.

`output` is what the pipeline of `transformers` answers for the row, as JSON. The others are the same as tensors, with
one value for each row. Where rows have different numbers of values, `count` is the number of each row: the others end
with the longest row of the request, and shorter rows are filled up with zeros or empty texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from runtimes.tensor.configuration.hugging_face import (
    FEATURES,
    MASKS,
    OBJECTS,
    PICTURES,
    QUESTIONS,
    SPEECH,
    TEXTS,
    TOKENS,
    ZERO_SHOT,
)
from runtimes.tensor.configuration.model_config import TensorSpec
from runtimes.tensor.huggingface.folder import PipelineSettings, class_names
from runtimes.tensor.interfaces import ModelLoadError

COUNT: Final = "count"
JSON: Final = TensorSpec("output", "BYTES", ())
TRUNCATED: Final = TensorSpec("truncated", "BOOL", ())
_TEXT: Final = TensorSpec("args", "BYTES", ())
_FILE: Final = TensorSpec("args", "BYTES", (), optional=True)
_PIXELS: Final = TensorSpec("pixels", "UINT8", (-1, -1, 3), optional=True)
_LABEL: Final = (TensorSpec("label", "BYTES", ()), TensorSpec("score", "FP32", ()))


class PipelineTensors(NamedTuple):
    """The tensors of a model."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    counted: tuple[str, ...] = ()
    """Outputs whose first dimension is the longest row."""


def signature(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    """The tensors of a model by its config.json. Raises `ModelLoadError`."""
    made = _SIGNATURES[settings.task](raw, settings)
    if made.counted:
        made = made._replace(outputs=(*made.outputs, TensorSpec(COUNT, "INT32", ())))
    if settings.too_long == "cut" and settings.task in (TEXTS, TOKENS, MASKS, ZERO_SHOT, FEATURES):
        made = made._replace(outputs=(*made.outputs, TRUNCATED))
    return made


def _texts(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    # KServe's clients send a text alone for a row, which is for models with one input.
    inputs = (_TEXT, TensorSpec("text_pair", "BYTES", ())) if settings.pairs else (_TEXT,)
    return PipelineTensors(inputs, (JSON, *_LABEL, _scores(raw)))


def _scores(raw: Mapping[str, Any]) -> TensorSpec:
    names = class_names(raw)
    return TensorSpec("scores", "FP32", (len(names),), labels=names)


def _tokens(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    outputs = (
        JSON, TensorSpec("labels", "BYTES", (-1,)), TensorSpec("scores", "FP32", (-1,)),
        TensorSpec("words", "BYTES", (-1,)), TensorSpec("start", "INT32", (-1,)), TensorSpec("end", "INT32", (-1,)),
    )  # fmt: skip
    return PipelineTensors((_TEXT,), outputs, tuple(spec.name for spec in outputs[1:]))


def _masks(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    vocabulary = raw.get("vocab_size")
    most = min(settings.top_k, vocabulary) if isinstance(vocabulary, int) and vocabulary > 0 else settings.top_k
    dims = (-1, most)
    outputs = (JSON, TensorSpec("tokens", "BYTES", dims), TensorSpec("scores", "FP32", dims))
    return PipelineTensors((_TEXT,), outputs, ("tokens", "scores"))


def _zero_shot(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    labels = TensorSpec("candidate_labels", "BYTES", (-1,))
    return PipelineTensors(
        (_TEXT, labels), (JSON, TensorSpec("labels", "BYTES", (-1,)), TensorSpec("scores", "FP32", (-1,)))
    )


def _questions(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    inputs = (TensorSpec("question", "BYTES", ()), TensorSpec("context", "BYTES", ()))
    places = (TensorSpec("start", "INT32", ()), TensorSpec("end", "INT32", ()))
    return PipelineTensors(inputs, (JSON, TensorSpec("answer", "BYTES", ()), TensorSpec("score", "FP32", ()), *places))


def _features(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    width = next((raw[name] for name in ("hidden_size", "dim", "d_model", "n_embd") if name in raw), None)
    if not isinstance(width, int) or width < 1:
        raise ModelLoadError("config.json has no hidden_size, which is the length of the features")
    if settings.pooling != "none":
        return PipelineTensors((_TEXT,), (TensorSpec("embedding", "FP32", (width,)),))
    return PipelineTensors((_TEXT,), (TensorSpec("features", "FP32", (-1, width)),), ("features",))


def _pictures(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    return PipelineTensors((_FILE, _PIXELS), (JSON, *_LABEL, _scores(raw)))


def _objects(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    outputs = (
        JSON, TensorSpec("labels", "BYTES", (-1,)), TensorSpec("scores", "FP32", (-1,)),
        TensorSpec("boxes", "FP32", (-1, 4)),
    )  # fmt: skip
    return PipelineTensors((_FILE, _PIXELS), outputs, ("labels", "scores", "boxes"))


def _speech(raw: Mapping[str, Any], settings: PipelineSettings) -> PipelineTensors:
    samples = TensorSpec("samples", "FP32", (-1,), optional=True)
    inputs = (_FILE, samples, TensorSpec("rate", "INT32", (), optional=True))
    return PipelineTensors(inputs, (JSON, TensorSpec("text", "BYTES", ())))


_SIGNATURES: Final[Mapping[str, Callable[[Mapping[str, Any], PipelineSettings], PipelineTensors]]] = {
    TEXTS: _texts,
    TOKENS: _tokens,
    MASKS: _masks,
    ZERO_SHOT: _zero_shot,
    QUESTIONS: _questions,
    FEATURES: _features,
    PICTURES: _pictures,
    OBJECTS: _objects,
    SPEECH: _speech,
}
