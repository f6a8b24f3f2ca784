"""What the lists of models of other servers have in common: where each model lies, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runtimes.tensor.configuration.model_config import ModelConfig

MAX_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """A model in a list. Its versions are folders below `path`."""

    path: Path
    config: ModelConfig
    unused: tuple[str, ...] = ()
    """Settings without an effect here."""
    archives: Mapping[int, Path] = field(default_factory=dict)
    """The archive of each version, or its folder. Then no folder below `path` is a version."""


@dataclass(frozen=True, slots=True)
class FolderList:
    """The models of a list, and the reason for each that is not served."""

    models: Mapping[str, ListedFolder] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    is_read: bool = True
    """Whether the list itself can be read. If not, its models are not known."""


class ListError(Exception):
    """A list cannot be read; the message names the change to make."""


def content_of(path: Path) -> str:
    """The text of a list. Raises `ListError`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ListError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
        return content.decode()
    except OSError as error:
        raise ListError(f"{path.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ListError(f"{path.name} is not UTF-8 text") from None


def folder_of(written: str, root: Path) -> Path:
    """The folder of a model, from the folder of its list. Raises `ListError` for one that is not on this disk."""
    if "://" in written:
        raise ListError(f"its files are at {written.partition('://')[0]}://…: put them into a folder of this machine")
    if not written or "\0" in written:
        raise ListError("it has no `base_path`")
    path = root / written
    if not path.is_dir():
        raise ListError(f"its folder {written} does not exist here")
    return path
