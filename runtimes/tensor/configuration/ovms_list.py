"""OpenVINO Model Server's list of models, `config.json`: names, folders, versions, shapes, layouts and properties."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from runtimes.tensor.configuration.listed import FolderList, ListedFolder, ListError, content_of, folder_of
from runtimes.tensor.configuration.model_config import ModelConfig, VersionPolicy

FILE: Final = "config.json"
LISTS: Final = ("model_config_list", "mediapipe_config_list", "pipeline_config_list")
_NO_EFFECT: Final = frozenset({"nireq", "allow_cache", "idle_sequence_cleanup", "low_latency_transformation"})
"""They tune, or are for models with state."""
_FALSE: Final = frozenset({"stateful"})
"""Switches that are refused unless they are off."""
_OTHERS: Final = {
    "mediapipe_config_list": "it is a MediaPipe graph: serve it by an OpenVINO Model Server behind the gateway",
    "pipeline_config_list": "it is a graph of models: write it as an ensemble, or as a pipeline of the gateway",
}
_VERSION: Final = re.compile(r"[0-9]{1,18}")
_FILES: Final = (".xml", ".onnx", ".pdmodel", ".tflite")


def is_list(root: Path) -> bool:
    """Whether a folder's `config.json` is such a list: other projects have files of this name."""
    path = root / FILE
    if not path.is_file():
        return False
    try:
        text = content_of(path)
    except ListError:
        return False
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):  # a list with a mistake does not become a plain folder
        return any(f'"{name}"' in text for name in LISTS)
    return isinstance(fields, dict) and any(name in fields for name in LISTS)


def read(root: Path) -> FolderList:
    """The models of the list in a folder. Raises `ListError`."""
    try:
        fields = json.loads(content_of(root / FILE))
    except (ValueError, RecursionError):
        raise ListError(f"{FILE} is not valid JSON") from None
    models: dict[str, ListedFolder] = {}
    refused: dict[str, str] = {}
    for kind, why in _OTHERS.items():
        for entry in _entries(fields, kind):
            name = _name(entry)
            refused[name] = f"{name} in {FILE}: {why}"
    for entry in _entries(fields, "model_config_list"):
        config = entry.get("config")
        name = _name(config if isinstance(config, dict) else {})
        if name in models or name in refused:
            models.pop(name, None)
            refused[name] = f"{name} is in {FILE} twice: keep one"
            continue
        assert isinstance(config, dict)
        try:
            models[name] = _model(name, config, root)
        except ListError as error:
            refused[name] = f"{name} in {FILE}: {error}"
        except OSError as error:
            refused[name] = f"{name} in {FILE}: its folder cannot be read: {error.strerror}"
    return FolderList(models, refused)


def _entries(fields: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    entries = fields.get(kind) or []
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise ListError(f"`{kind}` in {FILE} must be a list of objects")
    yield from entries


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ListError(f"a model in {FILE} has no `name`")
    return name


def _model(name: str, fields: dict[str, Any], root: Path) -> ListedFolder:
    given = dict(fields)
    del given["name"]
    written = given.pop("base_path", "")
    path = folder_of(written if isinstance(written, str) else "", root)
    parameters = _properties(given.pop("plugin_config", {}))
    if (device := given.pop("target_device", "CPU")) != "CPU":
        parameters["device"] = _word("target_device", device)
    for field in ("shape", "layout", "batch_size"):
        if (value := given.pop(field, None)) is not None:
            parameters[field] = value if isinstance(value, str) else json.dumps(value)
    policy = _policy(given.pop("model_version_policy", None))
    unused = tuple(field for field in given if field in _NO_EFFECT)
    for field, value in given.items():
        if field not in _NO_EFFECT and not (field in _FALSE and value is False):
            raise ListError(f"`{field[:64]}` is not served here")
    config = ModelConfig(
        name, "openvino", default_model_filename=_file(path), version_policy=policy, parameters=parameters
    )
    return ListedFolder(path, config, unused)


def _properties(written: Any) -> dict[str, str]:
    if not isinstance(written, dict):
        raise ListError("`plugin_config` must be an object")
    properties = {}
    for key, value in written.items():
        if not key.isupper() or not isinstance(value, str | int | float):
            raise ListError(f"`plugin_config.{key[:64]}` is not a property with a value")
        properties[key] = ("YES" if value else "NO") if isinstance(value, bool) else str(value)
    return properties


def _word(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ListError(f"`{field}` must be text")
    return value


def _policy(written: Any) -> VersionPolicy:
    match written:
        case None:
            return VersionPolicy()
        case {"all": dict()}:
            return VersionPolicy("all")
        case {"latest": {"num_versions": int(count)}} if count > 0:
            return VersionPolicy("latest", latest=count)
        case {"specific": {"versions": [*numbers]}} if numbers and all(type(one) is int for one in numbers):
            return VersionPolicy("specific", versions=tuple(numbers))
    raise ListError("`model_version_policy` is none of all, latest with num_versions, and specific with versions")


def _file(path: Path) -> str:
    """The name of the model's file in its newest version, where it may have any."""
    folders = (one for one in path.iterdir() if _VERSION.fullmatch(one.name) and one.is_dir())
    versions = sorted(folders, key=lambda one: int(one.name))
    for folder in reversed(versions):
        files = sorted(one for one in folder.iterdir() if one.suffix in _FILES)
        for suffix in _FILES:
            chosen = [one.name for one in files if one.suffix == suffix]
            if len(chosen) > 1:
                raise ListError(f"version {folder.name} has {', '.join(chosen)}: keep one")
            if chosen:
                return chosen[0]
        raise ListError(f"version {folder.name} has no file that ends in {', '.join(_FILES)}")
    raise ListError("it has no version: put its files into a folder 1")
