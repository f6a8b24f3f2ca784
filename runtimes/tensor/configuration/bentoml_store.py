"""Models of BentoML's store: `NAME/VERSION/model.yaml`, and `NAME/latest`, a file with the name of a version.

A folder of one version alone is a model too. Its `model.yaml` is not ours, and is recognised by its fields. It tells
the module that saved the model, and by that the file. No path is read from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from config.problem import ConfigError
from runtimes.tensor.configuration.bentoml_modules import config_of
from runtimes.tensor.configuration.foreign_files import mapping
from runtimes.tensor.configuration.listed import ListedFolder, ListError, is_number, numbered
from runtimes.tensor.configuration.model_config import ModelConfig, VersionPolicy

FILE: Final = "model.yaml"
LATEST: Final = "latest"
MAX_TAG: Final = 256
"""Bytes of the file `latest`. A name of BentoML has 63 at most."""
_THEIRS: Final = (re.compile(rb"^module\s*:", re.MULTILINE), re.compile(rb"^(api_version|context)\s*:", re.MULTILINE))
"""Fields that each of their files has and none of ours may have."""
_MOST: Final = 1 << 20


class _Version(NamedTuple):
    tag: str
    path: Path
    created: float
    config: ModelConfig
    unused: tuple[str, ...]


def listed(path: Path, name: str) -> ListedFolder | None:
    """What BentoML's files in a folder tell; None for a folder of another kind. Blocks for the disk.

    Raises `ListError` for one that is not served, and OSError.
    """
    if not (path / LATEST).is_file():
        return _alone(path, name) if is_theirs(path / FILE) else None
    folders = _versions(path)
    return _of_versions(path, name, folders) if folders else None


def has_versions(path: Path) -> bool:
    """Whether a folder with a file `latest` is a model of a store. Blocks for the disk. Raises OSError."""
    return bool(_versions(path))


def _versions(path: Path) -> list[Path]:
    hidden = (".", "_")
    return sorted(one for one in path.iterdir() if not one.name.startswith(hidden) and (one / FILE).is_file())


def is_theirs(path: Path) -> bool:
    """Whether a file is the `model.yaml` of BentoML. Blocks for the disk. Raises OSError."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return all(field.search(content) for field in _THEIRS)


def _alone(path: Path, name: str) -> ListedFolder:
    version = _read(path, name)
    labels = {} if is_number(version.tag) else {version.tag: 1}
    config = replace(version.config, version_labels=labels)
    return ListedFolder(path, config, version.unused, archives={1: path})


def _of_versions(path: Path, name: str, folders: list[Path]) -> ListedFolder:
    """All versions that are served as the latest is. The others, such as early ones of another module, are listed."""
    versions: dict[str, _Version] = {}
    reasons: dict[str, ListError] = {}
    for folder in folders:
        try:
            versions[folder.name] = _read(folder, name)
        except ListError as error:
            reasons[folder.name] = error
    by_age = sorted({**versions, **reasons}, key=lambda tag: (versions[tag].created if tag in versions else 0.0, tag))
    latest = _latest(path)
    if latest not in by_age:
        latest = by_age[-1]  # as BentoML does if that version was deleted
    if latest in reasons:
        raise reasons[latest]
    config = versions[latest].config
    served = {tag: one for tag, one in versions.items() if one.config == config and one.config.batch == config.batch}
    odd = [f"version {tag}: {error}" for tag, error in reasons.items()]
    odd += [f"version {tag}, whose module, options or signatures differ from those of {latest}," for tag in versions
            if tag not in served]  # fmt: skip
    numbers = numbered(sorted(served, key=lambda tag: (tag == latest, by_age.index(tag))), latest)
    labels = {tag: number for tag, number in numbers.items() if not is_number(tag)}
    config = replace(config, version_policy=VersionPolicy("all"), version_labels={**labels, LATEST: numbers[latest]})
    archives = {numbers[tag]: one.path for tag, one in served.items()}
    return ListedFolder(path, config, (*versions[latest].unused, *odd), archives)


def _latest(path: Path) -> str:
    """The name in the file `latest`: it only selects one of the folders that are there."""
    with (path / LATEST).open("rb") as file:
        return file.read(MAX_TAG).decode(errors="replace").strip()


def _read(folder: Path, name: str) -> _Version:
    """Raises `ListError`."""
    try:
        written = mapping(folder / FILE, yaml.safe_load)
    except ConfigError as error:
        raise ListError(f"{folder.name}/{FILE} {error.problems[0].message}") from None
    for field in ("name", "version", "module"):
        if not isinstance(written.get(field), str):
            raise ListError(f"{folder.name}/{FILE} is not BentoML's: `{field}` is no text")
    try:
        config, unused = config_of(written, folder, name)
    except ListError as error:
        raise ListError(f"{folder.name}/{FILE}: {error}") from None
    except ConfigError as error:
        raise ListError(f"{folder.name}/{Path(error.problems[0].file).name} {error.problems[0].message}") from None
    return _Version(folder.name, folder, _created(written), config, unused)


def _created(written: Mapping[str, Any]) -> float:
    """The time of the model in Unix seconds; 0 without one."""
    value = written.get("creation_time")
    if not isinstance(value, str | date):  # an alias of YAML may be of any size as text
        return 0.0
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value)[:64])
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
