"""TorchServe's model store: archives (`.mar`), and `config.properties` beside them.

A version of TorchServe is a text such as `1.0`. One that is a whole number stays it; others are labels, and numbered in
order, the default last.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from runtimes.tensor.configuration.listed import (
    FolderList,
    ListedFolder,
    ListError,
    content_of,
    is_number,
    numbered,
)
from runtimes.tensor.configuration.model_config import DynamicBatching, InstanceGroup, ModelConfig, VersionPolicy

FILE: Final = "config.properties"
SUFFIX: Final = ".mar"
MANIFEST: Final = "MAR-INF/MANIFEST.json"
MAX_BYTES: Final = 1 << 20
_REFUSED: Final = {
    "service_envelope": "leave it out: a handler gets the body of a request as it is",
    "install_py_dep_per_model": "install the packages into an environment, and set `interpreter` to its Python",
}
_SETTINGS: Final = {
    "parallelType": "", "torchrun": "", "continuousBatching": False, "sequenceBatching": False,
    "asyncCommunication": False,
}  # fmt: skip
"""Settings of a model that are refused unless they have no effect."""
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
ZIP_ERRORS: Final = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OverflowError, zlib.error, struct.error
)  # fmt: skip
"""What `zipfile` raises for an archive that is damaged, besides OSError and KeyError."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


MOST_NAMES: Final = 4096
_names: dict[Path, str] = {}
"""The models of archives as they were last read. One that is being replaced so keeps its model in service."""


class Archive(NamedTuple):
    """What an archive tells of itself."""

    path: Path
    name: str
    version: str
    settings_file: str
    settings: Mapping[str, Any]


def is_store(root: Path) -> bool:
    """Whether a folder is a model store."""
    if (root / FILE).is_file() and "model_store" in _properties(root):
        return True
    try:
        return any(one.suffix == SUFFIX for one in root.iterdir() if not one.name.startswith("."))
    except OSError:
        return False


def read(root: Path) -> FolderList:
    """The models of a store. Raises `ListError`."""
    properties = _properties(root)
    store = root / properties.get("model_store", ".")
    if not store.is_dir():
        raise ListError(f"`model_store` of {FILE} is {properties['model_store']}, which is no folder here")
    for name, advice in _REFUSED.items():
        if properties.get(name, "false").lower() not in ("false", ""):
            raise ListError(f"`{name}` of {FILE} is not served here: {advice}")
    configured = _models(properties)
    files, refused = _files(store, properties.get("load_models", ""), configured)
    archives: dict[str, list[Archive]] = {}
    for file, name in files:
        try:
            archive = archive_of(file)
        except ListError as error:
            refused[name or _names.get(file, file.stem)] = f"{file.name}: {error}"
        except OSError as error:  # removed or replaced at this moment
            refused[name or _names.get(file, file.stem)] = f"{file.name} cannot be read: {error.strerror}"
        else:
            if file in _names or len(_names) < MOST_NAMES:
                _names[file] = archive.name
            archives.setdefault(name or archive.name, []).append(archive)
    models = {}
    for name, versions in archives.items():
        if name in refused:
            continue
        try:
            models[name] = _model(name, versions, configured.get(name, {}), store)
        except ListError as error:
            refused[name] = f"{name}: {error}"
    return FolderList(models, refused)


def _properties(root: Path) -> dict[str, str]:
    """The properties of the file, with lines that continue; none without it."""
    try:
        text = content_of(root / FILE) if (root / FILE).is_file() else ""
    except ListError:
        return {}
    lines = re.sub(r"\\\r?\n\s*", "", text).splitlines()
    pairs = (re.split(r"\s*[=:]\s*", line.strip(), maxsplit=1) for line in lines if line.strip()[:1] not in ("#", "!"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _models(properties: Mapping[str, str]) -> Mapping[str, Mapping[str, Any]]:
    """The settings of versions, by model and version."""
    try:
        fields = json.loads(properties.get("models") or "{}")
        if "model_snapshot" in properties:
            fields = json.loads(properties["model_snapshot"])["models"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ListError(f"`models` of {FILE} is not valid JSON") from None
    versions = fields.values() if isinstance(fields, dict) else [None]
    if not all(isinstance(one, dict) and all(isinstance(each, dict) for each in one.values()) for one in versions):
        raise ListError(f"`models` of {FILE} must be an object of versions by model")
    return dict(fields)


def _files(
    store: Path, load: str, configured: Mapping[str, Mapping[str, Any]]
) -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """The archives to serve, each with the name of its model if it has another; and those that are not there."""
    files: list[tuple[Path, str]] = []
    refused: dict[str, str] = {}
    named = [(str(v.get("marName", "")), name) for name, versions in configured.items() for v in versions.values()]
    names = [one.strip() for one in load.split(",") if one.strip()]
    if names and names != ["all"]:
        pairs = [one.rpartition("=")[::2] for one in names]
        own = dict(named)
        listed = [(file, name or own.get(file, "")) for name, file in pairs]
        loaded = {name for _, name in listed}
        listed += [(file, name) for file, name in named if name in loaded and (file, name) not in listed]
    elif named and not names:
        listed = named
    else:
        own = dict(named)
        listed = [(one.name, own.get(one.name, "")) for one in sorted(store.iterdir()) if one.suffix == SUFFIX]
    for file, name in listed:
        path = store / file
        if "://" in file or "/" in file or path.suffix != SUFFIX:
            refused[name or file] = f"{file} is no archive ({SUFFIX}) of the model store"
        elif not path.exists():
            refused[name or path.stem] = f"{file} is not in the model store"
        else:
            files.append((path, name))
    return files, refused


def archive_of(path: Path) -> Archive:
    """What an archive tells of itself: a file, or a folder that was never packed. Raises `ListError`."""
    if path.is_dir():  # no state of the folder changes with that of a file in it
        return _read_archive(path)
    status = path.stat()
    return _archive_of(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=1024)
def _archive_of(path: Path, changed: int, size: int, number: int) -> Archive:
    """Cached by the state of the file."""
    return _read_archive(path)


def _read_archive(path: Path) -> Archive:
    try:
        manifest = json.loads(_member(path, MANIFEST))
    except (ValueError, RecursionError):
        raise ListError(f"its {MANIFEST} is not valid JSON") from None
    model = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(model, dict):
        raise ListError(f"its {MANIFEST} has no `model`")
    name, version, file = model.get("modelName"), model.get("modelVersion", "1.0"), model.get("configFile", "")
    if not isinstance(name, str) or not name or not isinstance(version, str) or not isinstance(file, str):
        raise ListError(f"`modelName`, `modelVersion` or `configFile` in its {MANIFEST} is not text")
    settings: Any = {}
    if file:
        try:
            settings = yaml.safe_load(_member(path, file)) or {}
        except (yaml.YAMLError, RecursionError, ValueError):
            raise ListError(f"its {file} is not YAML") from None
    if not isinstance(settings, dict):
        raise ListError(f"its {file} must be an object")
    return Archive(path, name, version, file, settings)


def _member(path: Path, name: str) -> str:
    """The text of a file of an archive. Raises `ListError`, and ValueError if it is not UTF-8."""
    try:
        if path.is_dir():
            file = (path / name).resolve()
            if not file.is_relative_to(path.resolve()):
                raise ListError(f"it names {name[:100]!r}, which is not in it")
            with file.open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
        else:
            with zipfile.ZipFile(path) as archive:
                check_method(entry := archive.getinfo(name))
                with archive.open(entry) as member:
                    content = member.read(MAX_BYTES + 1)
    except (KeyError, FileNotFoundError):
        raise ListError(f"it has no {name[:100]}") from None
    except (*ZIP_ERRORS, OSError) as error:
        raise ListError(f"it is no zip file that can be read: {error}"[:300]) from None
    if len(content) > MAX_BYTES:
        raise ListError(f"its {name} is larger than {MAX_BYTES >> 20} MiB")
    return content.decode()


def check_method(entry: zipfile.ZipInfo) -> None:
    """Raises BadZipFile for a compression whose output has no bound in `zipfile`. TorchServe reads none of them."""
    if entry.compress_type not in _METHODS:
        raise zipfile.BadZipFile(f"{entry.filename[:100]!r} is compressed by another method than deflate")


def _model(name: str, archives: list[Archive], configured: Mapping[str, Any], store: Path) -> ListedFolder:
    versions = {archive.version: archive for archive in archives}
    if len(versions) != len(archives):
        raise ListError(f"two archives have the same version: {', '.join(one.path.name for one in archives)}")
    default = next((one for one, given in configured.items() if given.get("defaultVersion") is True), "")
    numbers = numbered(sorted(versions, key=lambda one: (one == default, _order(one))), default)
    newest = versions[max(numbers, key=lambda one: numbers[one])]
    batches = {_settings(versions[one], configured.get(one, {})) for one in versions}
    if len(batches) > 1:
        raise ListError("its versions have different batch sizes, delays or workers: give them names of their own")
    ((size, delay, workers, seconds),) = batches
    parameters = {"model_config": newest.settings_file} if newest.settings_file else {}
    config = ModelConfig(
        name,
        "torchserve",
        max_batch_size=size,
        dynamic_batching=DynamicBatching(max_queue_delay=delay) if size > 1 else None,
        instance_groups=(InstanceGroup(count=workers),),
        execution_timeout=seconds,
        version_policy=VersionPolicy("all"),
        version_labels={one: number for one, number in numbers.items() if not is_number(one)},
        parameters=parameters,
    )
    return ListedFolder(
        store / name, config, archives={numbers[one]: archive.path for one, archive in versions.items()}
    )


def _order(version: str) -> tuple[Any, ...]:
    return tuple((0, int(one), "") if _NUMBER.fullmatch(one) else (1, 0, one) for one in version.split("."))


def _settings(archive: Archive, configured: Mapping[str, Any]) -> tuple[int, float, int, float]:
    """Batch size, delay of a batch, workers and seconds of a request. Those of the archive come first."""
    for name, harmless in _SETTINGS.items():
        if archive.settings.get(name, harmless) != harmless:
            raise ListError(f"`{name}` of its {archive.settings_file} is not served here")

    def number(name: str, default: int, most: int) -> int:
        value = archive.settings.get(name, configured.get(name, default))
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise ListError(f"`{name}` is {value!r}: expected a number from 1 to {most}"[:300])
        return value

    return (
        number("batchSize", 1, 1 << 16),
        number("maxBatchDelay", 100, 1 << 20) / 1000,
        number("minWorkers", 1, 256),
        float(number("responseTimeout", 120, 1 << 20)),
    )
