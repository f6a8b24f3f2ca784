"""What a model's files declare about its answers: the tokens that end them, and the sampling of its authors."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from runtimes.llm.weights.gguf_metadata import description, read_metadata

log = logging.getLogger(__name__)
_OF_GGUF = {
    "temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "penalty_repeat",
}  # fmt: skip
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2), "top_p": (0, 1), "top_k": (-1, 2**31 - 1), "min_p": (0, 1), "repetition_penalty": (0.01, 100)
}  # fmt: skip


class InvalidModelFile(ValueError):
    """A file of the model cannot be read; the message names it."""


def json_file(file: Path) -> dict[str, Any]:
    """The object in a file; an empty one without the file. Raises InvalidModelFile, OSError."""
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        raise InvalidModelFile(f"{file.name} is not JSON: it {description(file)}") from None
    if not isinstance(content, dict):
        raise InvalidModelFile(f"{file.name} is not a JSON object")
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """The sampling of a request that leaves a field out. `top_k` 0 is none."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def overridden(self, values: Mapping[str, Any], source: str) -> "SamplingDefaults":
        """With the `values` of these names. Raises InvalidModelFile, naming the `source`, for an impossible one."""
        given = {one.name: values[one.name] for one in fields(self) if values.get(one.name) is not None}
        for name, value in given.items():
            least, most = _RANGES[name]
            right = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
            if not right or (name == "top_k" and value != int(value)) or (name == "top_p" and not value):
                raise InvalidModelFile(f"{source} has {name} {value!r}: it must be {least:g} to {most:g}")
        if "top_k" in given:
            given["top_k"] = max(int(given["top_k"]), 0)
        return replace(self, **given)


def sampling_defaults(path: Path) -> SamplingDefaults:
    """The sampling that the model's authors recommend: of generation_config.json, or of a GGUF file's metadata.

    An impossible value is skipped with a warning: it is a recommendation.
    """
    if path.is_dir():
        given, source = json_file(path / "generation_config.json"), "generation_config.json"
    else:
        metadata, source = read_metadata(path), path.name
        given = {name: metadata.get(f"general.sampling.{key}") for name, key in _OF_GGUF.items()}
    defaults = SamplingDefaults()
    for name, value in given.items():
        try:
            defaults = defaults.overridden({name: value}, source)
        except InvalidModelFile as error:
            log.warning("%s: the value is left out", error)
    return defaults
