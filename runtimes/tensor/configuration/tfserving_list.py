"""TensorFlow Serving's list of models, `models.config`: names, folders, version policies and version labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format

from adapters.wire.protos.tfserving import serving
from runtimes.tensor.configuration.listed import FolderList, ListedFolder, ListError, content_of, folder_of
from runtimes.tensor.configuration.model_config import ModelConfig, VersionPolicy

FILE: Final = "models.config"


def read(root: Path) -> FolderList:
    """The models of the list in a folder. Raises `ListError`."""
    message = serving.ModelServerConfig()
    try:
        text_format.Parse(content_of(root / FILE), message)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise ListError(f"{FILE} is not a ModelServerConfig that is served here: {error}"[:500]) from None
    if message.WhichOneof("config") != "model_config_list":
        raise ListError(f"{FILE} has no `model_config_list`")
    models: dict[str, ListedFolder] = {}
    refused: dict[str, str] = {}
    for entry in message.model_config_list.config:
        if entry.name in models or entry.name in refused:
            models.pop(entry.name, None)
            refused[entry.name] = f"{entry.name} is in {FILE} twice: keep one"
            continue
        try:
            models[entry.name] = ListedFolder(folder_of(entry.base_path, root), _config(entry))
        except ListError as error:
            refused[entry.name] = f"{entry.name} in {FILE}: {error}"
        except OSError as error:
            refused[entry.name] = f"{entry.name} in {FILE}: its folder cannot be read: {error.strerror}"
    return FolderList(models, refused)


def _config(entry: Any) -> ModelConfig:
    if entry.model_platform not in ("tensorflow", ""):
        raise ListError(f"its platform {entry.model_platform[:64]!r} is not served here")
    return ModelConfig(
        entry.name,
        "tensorflow",
        version_policy=_policy(entry.model_version_policy),
        version_labels=dict(entry.version_labels),
    )


def _policy(policy: Any) -> VersionPolicy:
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy("all")
        case "specific":
            return VersionPolicy("specific", versions=tuple(policy.specific.versions))
        case "latest" if policy.latest.num_versions > 0:
            return VersionPolicy("latest", latest=policy.latest.num_versions)
    return VersionPolicy()
