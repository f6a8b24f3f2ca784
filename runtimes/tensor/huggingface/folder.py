"""A model's folder: what it must have, what is refused in it, and the settings of `parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from config.problem import closest
from runtimes.tensor.configuration.hugging_face import (
    CONFIG,
    FEATURES,
    MASKS,
    OBJECTS,
    PICTURES,
    QUESTIONS,
    SPEECH,
    TEXTS,
    TOKENS,
    WEIGHTS,
    ZERO_SHOT,
    UnservedTask,
    settings_of,
    task_of,
)
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelLoadError

_DTYPES: Final = ("auto", "float32", "float16", "bfloat16")
_AGGREGATIONS: Final = ("none", "simple", "first", "average", "max")
_POOLINGS: Final = ("none", "mean", "cls")
_TOO_LONG: Final = ("refuse", "cut")
_FOR_ALL: Final = frozenset({"probe", "memory_limit", "interpreter"})
"""Parameters that the runtime itself reads."""
_OF_TEXTS: Final = (TEXTS, TOKENS, MASKS, ZERO_SHOT, FEATURES)
_OF_TASKS: Final[Mapping[str, tuple[str, ...]]] = {
    "tokenizer": (*_OF_TEXTS, QUESTIONS, SPEECH),
    "processor": (PICTURES, OBJECTS, SPEECH),
    "too_long": _OF_TEXTS,
    "max_tokens": (*_OF_TEXTS, QUESTIONS),
    "pairs": (TEXTS,),
    "aggregation": (TOKENS,),
    "pooling": (FEATURES,),
    "hypothesis_template": (ZERO_SHOT,),
    "multi_label": (ZERO_SHOT,),
    "top_k": (MASKS,),
    "threshold": (OBJECTS,),
    "chunk_length": (SPEECH,),
}
"""The tasks of each parameter that is not for all."""
_CODE: Final = "runs code of the folder, which is never done here"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """What `parameters` of a model may set. Lengths are tokens, times are seconds."""

    task: str
    tokenizer: str = ""
    """The folder of the tokenizer, from the version's folder. Empty: that of the model."""
    processor: str = ""
    """The same for pictures and sound."""
    dtype: str = "auto"
    """The numbers of the computation; `auto`: those of the file."""
    too_long: str = "refuse"
    """What becomes of a text that is longer than `max_tokens`."""
    max_tokens: int = 0
    """The longest text; 0 for the model's own limit."""
    pairs: bool = False
    """Whether the classes are those of two texts."""
    aggregation: str = "none"
    """How tokens become entities: `aggregation_strategy` of `transformers`."""
    pooling: str = "none"
    """How features of tokens become one vector."""
    hypothesis_template: str = "This example is {}."
    multi_label: bool = False
    top_k: int = 5
    """Tokens for each mask."""
    threshold: float = 0.5
    """The least score of an object."""
    chunk_length: float = 0.0
    """The parts into which sound is cut; 0 for none."""


def opened(config: ModelConfig, folder: Path) -> tuple[Path, Mapping[str, Any], PipelineSettings]:
    """The model's own folder, its config.json, and the settings. Blocks for the disk. Raises `ModelLoadError`."""
    place = folder / config.default_model_filename if config.default_model_filename else folder
    try:
        raw = settings_of(place / CONFIG)
        written = _settings(config.parameters, task_of(config.parameters.get("task", ""), raw))
    except FileNotFoundError:
        raise ModelLoadError(f"there is no {CONFIG} in the folder of the model") from None
    except (OSError, ValueError, UnservedTask) as error:
        raise ModelLoadError(str(error)) from None
    _check(place, raw)
    return place, raw, written


def class_names(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes of a model in order, as `transformers` reads them. Raises `ModelLoadError`."""
    names = raw.get("id2label")
    if isinstance(names, dict) and names:
        try:
            return tuple(str(names[key]) for key in sorted(names, key=int))
        except (TypeError, ValueError):
            raise ModelLoadError(f"id2label of {CONFIG} has keys that are no numbers") from None
    count = raw.get("num_labels", 2)
    if not isinstance(count, int) or not 0 < count <= 1 << 20:
        raise ModelLoadError(f"num_labels of {CONFIG} is no number of classes")
    return tuple(f"LABEL_{number}" for number in range(count))


def _settings(parameters: Mapping[str, str], task: str) -> PipelineSettings:
    """Raises ValueError, which names the parameter."""
    names = [name for name in PipelineSettings.__dataclass_fields__ if name != "task"]
    values: dict[str, Any] = {}
    for name, text in parameters.items():
        if name == "trust_remote_code":
            raise ValueError(f"parameter `trust_remote_code` {_CODE}: leave it out")
        if name in names:
            if task not in _OF_TASKS.get(name, (task,)):
                raise ValueError(f"parameter `{name}` has no effect for {task}: leave it out")
            values[name] = _value(name, text)
        elif name != "task" and name not in _FOR_ALL and not name.startswith("headrace."):
            meant = closest(name, ["task", *names])
            raise ValueError(f"parameter `{name}` is not one of this backend" + (f": {meant}" if meant else ""))
    return PipelineSettings(task=task, **values)


def _value(name: str, text: str) -> Any:
    kind = PipelineSettings.__dataclass_fields__[name].type
    choices = {"dtype": _DTYPES, "aggregation": _AGGREGATIONS, "pooling": _POOLINGS, "too_long": _TOO_LONG}.get(name)
    if choices is not None and text not in choices:
        raise ValueError(f"parameter `{name}` is {', '.join(choices[:-1])} or {choices[-1]}, not `{text[:50]}`")
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError(f"parameter `{name}` is true or false, not `{text[:50]}`")
        return text == "true"
    if kind in ("int", "float"):
        return _number(name, text, whole=kind == "int")
    if name == "hypothesis_template" and (text.count("{}"), text.count("{"), text.count("}")) != (1, 1, 1):
        raise ValueError("parameter `hypothesis_template` must have `{}` once, for the label, and no other braces")
    if name in ("tokenizer", "processor") and (text.startswith("/") or ".." in Path(text).parts or "://" in text):
        raise ValueError(f"parameter `{name}` must be a folder within the model's own")
    return text


def _number(name: str, text: str, *, whole: bool) -> float:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = -1
    if not 0 < number <= (1 << 20 if whole else 600):
        raise ValueError(f"parameter `{name}` is no {'whole ' if whole else ''}number above 0: {text[:50]!r}")
    return number


def _check(place: Path, raw: Mapping[str, Any]) -> None:
    """Raises `ModelLoadError` for what would run code, fetch files, or needs packages of its own."""
    names = sorted(entry.name for entry in place.iterdir() if entry.is_file())
    if "adapter_config.json" in names:
        raise ModelLoadError("adapter_config.json: adapters are not read here: merge the adapter into the model")
    if not any(Path(name).match(kind) for name in names for kind in WEIGHTS):
        have = [name for name in names if name.endswith((".h5", ".msgpack", ".onnx", ".gguf"))]
        others = f"; {', '.join(have[:5])} cannot be read by PyTorch" if have else ""
        raise ModelLoadError(f"the folder has no weights, which are *.safetensors or pytorch_model.bin{others}")
    if raw.get("quantization_config"):
        raise ModelLoadError(f"quantization_config of {CONFIG}: quantized weights are not served: use those before")
    for name in ("attn_implementation", "_attn_implementation"):
        if isinstance(raw.get(name), str) and "/" in raw[name]:
            raise ModelLoadError(f"{name} of {CONFIG} is {raw[name][:100]}, which would be fetched: leave it out")
