"""The settings of OpenVINO Model Server that change a model's tensors before it is compiled: `shape`, `batch_size` and
`layout`.

`shape` is `(1,3,-1,-1)` or `auto` (any lengths), or an object of them by input; a dimension is a number, -1 or
`lowest:highest`. `layout` is `NHWC:NCHW`: that of requests, and that of the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import openvino as ov
from openvino.preprocess import PrePostProcessor

from runtimes.tensor.interfaces import ModelLoadError

SETTINGS: Final = ("shape", "batch_size", "layout")
_DIMENSION: Final = re.compile(r"-1|\d{1,9}|\d{1,9}:\d{1,9}")
_LAYOUT: Final = re.compile(r"[A-Z]{1,16}")


def shaped(model: Any, parameters: Mapping[str, str]) -> Any:
    """The model with these settings. Raises `ModelLoadError` for one that has no meaning or does not fit."""
    given = {name: parameters[name] for name in SETTINGS if name in parameters}
    if not given:
        return model
    if "shape" in given and "batch_size" in given:
        raise ModelLoadError("`shape` and `batch_size` are both given: keep one of them")
    try:
        if "shape" in given:
            model.reshape(_shapes(model, given["shape"]))
        if "batch_size" in given:
            first = _dimension("batch_size", given["batch_size"])
            model.reshape({port: _with_first(port, first) for port in model.inputs})
        return _laid_out(model, given["layout"]) if "layout" in given else model
    except RuntimeError as error:  # several lines, with paths of its own sources
        *_, reason = str(error).strip().splitlines()
        raise ModelLoadError(f"the model has no such {' or '.join(given)}: {reason}") from None


def _by_input(model: Any, setting: str, written: str) -> dict[Any, str]:
    """What is written for each input. Raises `ModelLoadError`."""
    if not written.lstrip().startswith("{"):
        if len(model.inputs) != 1 and written != "auto":
            raise ModelLoadError(f"`{setting}` is one value, and the model has {len(model.inputs)} inputs: name them")
        return dict.fromkeys(model.inputs, written)
    try:
        fields = json.loads(written)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ModelLoadError(f"`{setting}` is neither text nor an object of texts by input")
    ports = {name: port for port in model.inputs for name in port.get_names()}
    if unknown := [name for name in fields if name not in ports]:
        raise ModelLoadError(f"`{setting}` names the input `{unknown[0]}`: the model has {', '.join(sorted(ports))}")
    return {ports[name]: value for name, value in fields.items()}


def _shapes(model: Any, written: str) -> dict[Any, Any]:
    shapes = {}
    for port, text in _by_input(model, "shape", written).items():
        if text == "auto":
            shapes[port] = ov.PartialShape([-1] * len(port.get_partial_shape()))
            continue
        dims = text.strip().removeprefix("(").removesuffix(")").split(",")
        shapes[port] = ov.PartialShape([_dimension("shape", one.strip()) for one in dims if one.strip()])
    return shapes


def _dimension(setting: str, text: str) -> Any:
    if text == "auto":
        return ov.Dimension(-1)
    if not _DIMENSION.fullmatch(text):
        raise ModelLoadError(f"`{setting}`: {text[:64]!r} is no number, -1, lowest:highest or auto")
    lowest, _, highest = text.partition(":")
    return ov.Dimension(int(lowest), int(highest)) if highest else ov.Dimension(int(lowest))


def _with_first(port: Any, first: Any) -> Any:
    shape = list(port.get_partial_shape())
    if not shape:
        raise ModelLoadError("`batch_size` is given, and an input of the model has no dimension")
    return ov.PartialShape([first, *shape[1:]])


def _laid_out(model: Any, written: str) -> Any:
    """The model with a first operator that converts the layout of requests to its own."""
    steps = PrePostProcessor(model)
    for port, text in _by_input(model, "layout", written).items():
        of_requests, _, own = text.partition(":")
        if not _LAYOUT.fullmatch(of_requests) or (own and not _LAYOUT.fullmatch(own)):
            raise ModelLoadError(f"`layout`: {text[:64]!r} is not written as NHWC:NCHW")
        rank = port.get_partial_shape().rank
        if own and (sorted(own) != sorted(of_requests) or (rank.is_static and rank.get_length() != len(own))):
            raise ModelLoadError(f"`layout`: {text} does not fit `{port.get_any_name()}`, or has other dimensions")
        if own and own != of_requests:
            step = steps.input(port.get_any_name())
            step.tensor().set_layout(ov.Layout(of_requests))
            step.model().set_layout(ov.Layout(own))
    return steps.build()
