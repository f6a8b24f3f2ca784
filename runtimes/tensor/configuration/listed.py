"""What the lists of models of other servers have in common: where each model lies, and its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runtimes.tensor.configuration.model_config import ModelConfig

MAX_BYTES: Final = 4 << 20
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """A model in a list. Its versions are folders below `path`."""

    path: Path
    config: ModelConfig
    unused: tuple[str, ...] = ()
    """Settings without an effect here."""
    archives: Mapping[int, Path] = field(default_factory=dict)
    """The archive of each version, or its folder. Then no folder below `path` is a version."""

    @property
    def is_packed(self) -> bool:
        """Whether a version has to be unpacked. Blocks for the disk."""
        return not all(path.is_dir() for path in self.archives.values())

    @property
    def is_alone(self) -> bool:
        """Whether the model's folder is that of its only version, so that no file in it is a configuration of ours
        but `config.pbtxt`."""
        return self.path in self.archives.values()


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


def is_number(version: str) -> bool:
    """Whether a name of a version is the number of a version here. Any other name is a label."""
    return _WHOLE.fullmatch(version) is not None


def numbered(versions: Sequence[str], default: str) -> dict[str, int]:
    """The number of each version, in this order, whose last is the default. Raises `ListError`."""
    if any(map(is_number, versions)):
        if not all(map(is_number, versions)):
            raise ListError(f"its versions are {', '.join(versions)}: write all as numbers, or none")
        numbers = {one: int(one) for one in versions}
        if default and numbers.get(default) != max(numbers.values()):
            raise ListError(f"its default version is {default}: the default here is the highest")
        return numbers
    if odd := [one for one in versions if not re.fullmatch(r"[\w.-]+", one)]:
        raise ListError(f"its version {odd[0]!r} is not made of letters, digits, points and dashes")
    return {one: number for number, one in enumerate(versions, 1)}
