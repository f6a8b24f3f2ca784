"""The folders of models: `NAME/VERSION/FILE`, with the configuration beside the versions. A folder of another project
(`foreign`) may have the files themselves.

Hidden entries and temporary files of programs that copy (`.model.onnx.x7Gh2`, `3.tmp`) are ignored.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runtimes.tensor.configuration import bentoml_store, hugging_face
from runtimes.tensor.configuration.foreign import MARKERS, MODEL_SUFFIXES
from runtimes.tensor.configuration.listed import FolderList, ListedFolder, ListError
from runtimes.tensor.configuration.model_lists import list_of

MAX_NAME = 255
MAX_FILES = 100_000
CONFIGURATIONS = ("config.pbtxt", "model.yaml")
MAX_CONFIGURATION = 1 << 20
_VERSION = re.compile(r"[1-9]\d{0,17}")
_LISTED_VERSION = re.compile(r"0*[1-9]\d{0,17}")
"""TensorFlow Serving's names of versions may begin with zeros."""
_ENSEMBLE = re.compile(rb"^\s*(ensemble_scheduling\b|ensemble\s*:)", re.MULTILINE)


class RepositoryError(Exception):
    """The repository cannot be read, or lacks the model; the message names the change to make."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on the disk.

    `stamps` change with any file of a version, `beside` with any other file of the model.
    """

    name: str
    path: Path
    stamps: Mapping[int, str]
    beside: str
    sizes: Mapping[int, int]
    """Bytes of all files of each version."""
    changed_at: float
    """Unix time of the last change to any file, from the file system."""
    places: Mapping[int, Path] = field(default_factory=dict)
    """The folder of each version: the model's own, where another project lays it out as the only version."""
    listed: ListedFolder | None = None
    """What the list of the repository tells, if it has one."""
    origin: str = ""
    """The address that the folder was pulled from; then it is whole, and never changes. Empty for a local folder."""

    @property
    def versions(self) -> tuple[int, ...]:
        """All versions in the folder, in order."""
        return tuple(sorted(self.stamps))

    def version(self, number: int) -> Path:
        """The folder of a version."""
        return self.places[number]

    def fingerprint(self, number: int) -> str:
        """A digest that changes if answers of this version may change."""
        return hashlib.blake2b(f"{self.beside} {self.stamps[number]}".encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """Every model, and the reason for each folder that is not a model."""

    models: Mapping[str, ModelFolder]
    refused: Mapping[str, str]
    is_whole: bool = True
    """Whether every list of models can be read. If not, models may be missing here."""


@dataclass(slots=True, eq=False)
class Root:
    """One folder of models."""

    path: Path
    label: str
    """Its name for clients, who see no path."""
    model: str = ""
    """For a pulled folder: the name of its model, if it has no folders of models and is one itself."""
    is_pulled: bool = False
    """Whether each `path` is a whole view, whose files never change. Another view is another path."""

    def address(self, path: Path) -> str:
        """Where a folder was pulled from; empty for one of this machine."""
        if not self.is_pulled or not path.is_relative_to(self.path):
            return ""
        return "/".join([self.label.rstrip("/"), *path.relative_to(self.path).parts])


class Repository:
    """One folder of models, or several that are served as one. Everything here blocks for the disk."""

    def __init__(self, *roots: Path | Root) -> None:
        self.roots = tuple(root if isinstance(root, Root) else Root(root, root.name) for root in roots)
        self.refresh: Callable[[], Awaitable[None]] | None = None
        """Pulls the roots, before a load by the API."""
        self._placed: dict[str, Path] = {}
        """Folders below a root by the names of their models, which requests gave them."""

    def place(self, name: str, written: str) -> None:
        """Have a folder below a local root be the model of a name, until `displace`. Raises `RepositoryError`."""
        check_name(name)
        if "://" in written or "\0" in written or not written.startswith("/"):
            raise RepositoryError("the url of a model is the absolute path of a folder in the repository")
        try:
            path = Path(written).resolve()
            roots = [root.path.resolve() for root in self.roots if not root.is_pulled]
            is_inside = any(path != root and path.is_relative_to(root) for root in roots)
            # One answer for both: else a client could ask which folders this machine has.
            if not is_inside or not path.is_dir():
                raise RepositoryError("the url of the model names no folder in the repository")
        except (OSError, RuntimeError) as error:
            raise RepositoryError(f"the url of the model cannot be read: {type(error).__name__}") from None
        self._placed[name] = path

    def displace(self, name: str) -> None:
        """Forget the folder that `place` gave a name."""
        self._placed.pop(name, None)

    def scan(self) -> Listing:
        """All models. Raises `RepositoryError` if a root cannot be read."""
        models: dict[str, ModelFolder] = {}
        refused: dict[str, str] = {}
        owners: dict[str, list[Root]] = {}
        is_whole = True
        for root in self.roots:
            places, unfit, is_read = _places(root)
            is_whole = is_whole and is_read
            for name in (*places, *unfit):
                owners.setdefault(name, []).append(root)
                if len(owners[name]) > 1:
                    models.pop(name, None)
                    refused[name] = _in_several(name, owners[name])
                    continue
                try:
                    if name in places:
                        models[name] = _model(*_described(*places[name], name), name, root)
                    else:
                        refused[name] = unfit[name]
                except ListError as error:
                    refused[name] = f"{name}: {_shown(str(error))}"
                except OSError as error:
                    refused[name] = f"{name} cannot be read: {error.strerror}"
        for name, path in self._placed.items():
            refused.pop(name, None)
            try:
                models[name] = _model(*_described(path, None, name), name)
            except (ListError, OSError) as error:
                models.pop(name, None)
                refused[name] = f"{name}: {_shown(str(error.strerror if isinstance(error, OSError) else error))}"
        return Listing(models, refused, is_whole)

    def find(self, name: str) -> ModelFolder:
        """The folder of one model. Raises `RepositoryError` for an unknown model."""
        check_name(name)
        root: Root | None = None
        if (path := self._placed.get(name)) is not None:
            place: _Place = path, None
        else:
            root, place = self._only(name)
        try:
            return _model(*_described(*place, name), name, root)
        except ListError as error:
            raise RepositoryError(f"{name}: {_shown(str(error))}") from None
        except OSError as error:
            raise RepositoryError(f"{name} cannot be read: {error.strerror}") from None

    def _only(self, name: str) -> tuple[Root, _Place]:
        """The root that has a model, and its place. Raises `RepositoryError` unless it is in one."""
        folders = {root: place for root in self.roots if (place := _place(root, name)) is not None}
        if len(folders) > 1:
            raise RepositoryError(_in_several(name, folders))
        if not folders:
            raise RepositoryError(f"there is no model {name} in the repository")
        ((root, place),) = folders.items()
        return root, place


def _in_several(name: str, roots: Iterable[Root]) -> str:
    return f"{name} is in more than one repository ({', '.join(root.label for root in roots)}): keep one of them"


def check_name(name: str) -> None:
    """Raises `RepositoryError` unless the name is a plain name of one folder."""
    if (
        not name
        or not name.isprintable()  # before its bytes are counted: JSON may have characters that have none
        or len(name.encode()) > MAX_NAME
        or name.startswith(".")
        or set(name) & set("/\\")
    ):
        raise RepositoryError("a model's name is that of one folder: no / or \\, and no dot at the beginning")


def model_at(path: Path, name: str) -> ModelFolder:
    """A model in a folder outside of any repository."""
    return _model(path, None, name)


_Place = tuple[Path, ListedFolder | None]
"""A model's folder, and what the list of its repository tells."""


def _described(path: Path, listed: ListedFolder | None, name: str) -> _Place:
    """The place with what files of BentoML in the folder tell. Raises `ListError` and OSError."""
    return path, bentoml_store.listed(path, name) if listed is None else listed


def _places(root: Root) -> tuple[Mapping[str, _Place], Mapping[str, str], bool]:
    """The models of one root, the reasons for those that its list has in vain, and whether its list can be read.

    Raises `RepositoryError`.
    """
    if (models := _list(root.path)) is None:
        if name := _own_model(root):
            return {name: (root.path, None)}, {}, True
        return {name: (root.path / name, None) for name in _folders(root.path)}, {}, True
    places: dict[str, _Place] = {}
    refused = {_shown(name): _shown(why) for name, why in models.refused.items()}
    for name, listed in models.models.items():
        try:
            check_name(name)
            places[name] = listed.path, listed
        except RepositoryError as error:
            refused[_shown(name)] = str(error)
    return places, refused, models.is_read


def _own_model(root: Root) -> str:
    """The name of the model that a root is itself; empty for a folder of models."""
    if not root.is_pulled:  # whoever has a folder of Hugging Face gives it as it is
        return root.path.resolve().name if hugging_face.is_folder(root.path) else ""
    return root.model if root.model and _is_model(root) else ""


def _is_model(root: Root) -> bool:
    """Whether a pulled folder is a model itself: it has a configuration, a version or a model's file."""
    if (root.path / bentoml_store.LATEST).is_file():
        return bentoml_store.has_versions(root.path)
    if hugging_face.is_folder(root.path):
        return True
    with os.scandir(root.path) as entries:
        return any(
            bool(_VERSION.fullmatch(entry.name))
            if entry.is_dir()
            else entry.name in (*CONFIGURATIONS, *MARKERS) or entry.name.endswith(MODEL_SUFFIXES)
            for entry in entries
        )


def _list(root: Path) -> FolderList | None:
    """Raises `RepositoryError`."""
    try:
        return list_of(root)
    except OSError as error:
        raise RepositoryError(f"the model repository {root} cannot be read: {error.strerror}") from None


def _shown(text: str) -> str:
    """A text that any encoder takes: JSON may have halves of characters."""
    return text.encode(errors="replace").decode()


def _place(root: Root, name: str) -> _Place | None:
    """Raises `RepositoryError` if the list of the root refuses the model."""
    if (models := _list(root.path)) is None:
        if own := _own_model(root):
            return (root.path, None) if name == own else None
        return (root.path / name, None) if (root.path / name).is_dir() else None
    if name in models.refused:
        raise RepositoryError(models.refused[name])
    listed = models.models.get(name)
    return None if listed is None else (listed.path, listed)


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if _is_ours(entry.name) and entry.is_dir())
    except OSError as error:
        raise RepositoryError(f"the model repository {root} cannot be read: {error.strerror}") from None


def _is_ours(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(("~", ".tmp", ".part", ".partial"))


def _model(path: Path, listed: ListedFolder | None, name: str, root: Root | None = None) -> ModelFolder:
    versions: dict[int, Path] = {}
    beside: list[Path] = []
    if listed is not None and listed.archives:
        versions |= listed.archives
        if path.is_dir() and not listed.is_alone:
            beside += [one for one in path.iterdir() if _is_ours(one.name) and one.is_file()]
    else:
        with os.scandir(path) as entries:
            for entry in entries:
                if (_VERSION if listed is None else _LISTED_VERSION).fullmatch(entry.name) and entry.is_dir():
                    versions[int(entry.name)] = path / entry.name
                elif _is_ours(entry.name):
                    beside.append(path / entry.name)
    is_model = any(one.name in MARKERS or one.suffix in MODEL_SUFFIXES for one in beside)
    if not versions and (is_model or hugging_face.is_folder(path)):
        versions, beside = {1: path}, []
    ensemble = _is_ensemble(beside)
    stamps = {
        number: _stamp([folder], path)
        for number, folder in versions.items()
        if ensemble or folder.is_file() or any(files(folder))
    }
    others = _stamp(sorted(beside), path)
    digest = others.digest if listed is None else f"{others.digest} {listed.config!r}"
    return ModelFolder(
        name,
        path,
        {number: stamp.digest for number, stamp in stamps.items()},
        digest,
        {number: stamp.size for number, stamp in stamps.items()},
        max(
            [
                path.stat().st_ctime if path.exists() else 0.0,
                others.changed_at,
                *(stamp.changed_at for stamp in stamps.values()),
            ]
        ),
        versions,
        listed,
        "" if root is None else root.address(path),
    )


def _is_ensemble(beside: Iterable[Path]) -> bool:
    """Whether a model is an ensemble, whose versions have no files."""
    for path in beside:
        if path.name in CONFIGURATIONS and path.is_file():
            with path.open("rb") as file:
                return _ENSEMBLE.search(file.read(MAX_CONFIGURATION)) is not None
    return False


class _Stamp(NamedTuple):
    digest: str
    size: int
    changed_at: float


def _stamp(paths: Iterable[Path], model: Path) -> _Stamp:
    """Names, sizes and times of all files, hidden ones included: these may be copies in progress.

    Names are those within the model: views of one content have equal stamps.
    """
    digest, size, changed_at = hashlib.blake2b(digest_size=12), 0, 0.0
    for path in paths:
        for file in sorted([path] if path.is_file() else files(path, hidden=True)):
            status = file.stat()
            name = str(file).removeprefix(f"{model}/")
            digest.update(f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ino}\0".encode(errors="replace"))
            size += status.st_size
            changed_at = max(changed_at, status.st_ctime)
    return _Stamp(digest.hexdigest(), size, changed_at)


def files(folder: Path, *, hidden: bool = False) -> Iterator[Path]:
    """All files below a folder but cached bytecode, without hidden and temporary ones unless `hidden`."""
    count = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and (hidden or _is_ours(name))]
        for name in names:
            if hidden or _is_ours(name):
                count += 1
                if count > MAX_FILES:
                    raise OSError(0, f"more than {MAX_FILES} files")
                yield Path(path, name)
