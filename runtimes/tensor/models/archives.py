"""Archives of models, unpacked into a folder that is removed after their last use.

An archive is data of somebody else: no entry may leave the folder, be a link or a device, or grow without a bound.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from adapters.process import TemporaryFolder
from runtimes.tensor.configuration.torchserve_store import ZIP_ERRORS, check_method
from runtimes.tensor.models.overrides import adopt, remove
from runtimes.tensor.models.repository import CONFIGURATIONS, ModelFolder, RepositoryError

MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 64 << 30
MAX_RATIO: Final = 200
"""Bytes of an archive's files for each of its own, beyond `FREE_BYTES`. Only a bomb has more."""
FREE_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20


def unpacked(folder: ModelFolder) -> tuple[ModelFolder, str]:
    """A listed model with its archives unpacked, and the digest of all of them. Blocks for the disk.

    A model that was never packed stays where it is. Raises `RepositoryError`, and then leaves no file.
    """
    assert folder.listed is not None
    temporary = TemporaryFolder()
    root = Path(temporary.name) / "model"
    adopt(root, temporary)
    digest = hashlib.blake2b(folder.beside.encode(), digest_size=12)
    places = {}
    path = folder.path
    try:
        root.mkdir()
        for file in CONFIGURATIONS:
            if (path / file).is_file():
                shutil.copyfile(path / file, root / file)
        for number, path in sorted(folder.listed.archives.items()):
            if number not in folder.stamps:  # removed since the list was read
                continue
            digest.update(f"{number} {folder.stamps[number]} ".encode())
            places[number] = path
            if not path.is_dir():
                places[number] = root / str(number)
                places[number].mkdir()
                _unpack(path, places[number])
    except ZIP_ERRORS as error:
        remove(root)
        raise RepositoryError(f"{path.name} cannot be unpacked: {error}"[:400]) from None
    except OSError as error:
        remove(root)
        raise RepositoryError(f"{path.name} cannot be unpacked: {error.strerror}") from None
    except BaseException:
        remove(root)
        raise
    return replace(folder, path=root, places=places), digest.hexdigest()


def _unpack(path: Path, folder: Path) -> None:
    """Raises `RepositoryError`, and the errors of zip files and of the disk."""
    bound = min(MAX_BYTES, FREE_BYTES + MAX_RATIO * path.stat().st_size)
    left = bound
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > MAX_ENTRIES:
            raise RepositoryError(f"{path.name} has more than {MAX_ENTRIES} entries")
        seen: set[str] = set()
        for entry in entries:
            target = _target(path, entry, folder)
            if entry.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            if str(target) in seen:
                raise RepositoryError(f"{path.name} has {entry.filename[:100]!r} twice")
            seen.add(str(target))
            check_method(entry)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as file:
                while chunk := source.read(min(_CHUNK, left + 1)):
                    left -= len(chunk)
                    if left < 0:
                        raise RepositoryError(f"{path.name} has more than {bound} bytes when it is unpacked")
                    file.write(chunk)


def _target(path: Path, entry: zipfile.ZipInfo, folder: Path) -> Path:
    """Where an entry goes. Raises `RepositoryError`."""
    name, kind = PurePosixPath(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise RepositoryError(f"{path.name} has {entry.filename[:100]!r}, which is a link or no file")
    if name.is_absolute() or ".." in name.parts or "\\" in entry.filename or not name.parts:
        raise RepositoryError(f"{path.name} has {entry.filename[:100]!r}, which is outside of the archive")
    return folder.joinpath(*name.parts)
