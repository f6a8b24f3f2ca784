"""The files of a load request, in a folder of their own that is removed after its last use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.process import TemporaryFolder
from runtimes.tensor.models.repository import ModelFolder, RepositoryError, model_at

MAX_PARTS = 16


@dataclass(frozen=True, slots=True)
class Override:
    """The configuration and files of a load request. `config` is Triton's JSON; files are by `VERSION/NAME`.

    With files, no file of the repository is loaded; without files, the repository's are.
    """

    config: str
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """A digest of the configuration and all files."""
        digest = hashlib.blake2b(self.config.encode(errors="replace"), digest_size=12)
        for name, content in sorted(self.files.items()):
            digest.update(f"\0{name}\0{len(content)}\0".encode(errors="replace"))
            digest.update(content)
        return digest.hexdigest()


def check_files(files: Mapping[str, bytes]) -> None:
    """Raise `RepositoryError` for a path outside of the model's folder, or a name that is not a file's."""
    for name in files:
        parts = name.split("/")
        plain = name.isprintable() and "\\" not in name and len(name.encode(errors="replace")) <= 1024
        # An empty part is a slash at the beginning, which would be an absolute path, at the end, or a double one.
        if not plain or len(parts) > MAX_PARTS or any(not part or part.startswith(".") for part in parts):
            raise RepositoryError(f"file:{name[:64]!r} is not a path of a model's file: write file:VERSION/NAME")


_temporary: dict[Path, TemporaryFolder] = {}
"""Overrides by the model's folder, until the model is unloaded."""


def adopt(folder: Path, temporary: TemporaryFolder) -> None:
    """Have `remove` remove a folder within a temporary one."""
    _temporary[folder] = temporary


def unpack(name: str, override: Override) -> ModelFolder:
    """Write the files into a new folder. Blocks for the disk. Raises `RepositoryError`, and then leaves no file."""
    check_files(override.files)
    temporary = TemporaryFolder()
    folder = Path(temporary.name) / "model"
    adopt(folder, temporary)
    try:
        folder.mkdir()
        for file, content in override.files.items():
            path = (folder / file).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise RepositoryError(f"file:{file[:64]!r} is not a path of a model's file: write file:VERSION/NAME")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return model_at(folder, name)
    except OSError as error:
        remove(folder)
        raise RepositoryError(f"the files sent for {name} cannot be written: {error.strerror}") from None
    except BaseException:
        remove(folder)
        raise


def remove(folder: Path) -> None:
    """Remove the files that `unpack` wrote."""
    if (temporary := _temporary.pop(folder, None)) is not None:
        temporary.cleanup()
