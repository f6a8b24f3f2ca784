"""The card of a version: what it is and where it is from, as one text by name.

It has the owner's `card` of `model.yaml`, the framework and its version, a checksum of the files, what MLflow wrote
beside the model, and the statistics of the training data if the folder has them (`statistics.json`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

from config.problem import ConfigError
from runtimes.tensor.configuration import foreign, foreign_files
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.models.repository import ModelFolder, files

STATISTICS: Final = "statistics.json"
"""The file of the training data's statistics, in the folder of a version or beside the versions: any JSON object."""
MAX_TEXT: Final = 64 << 10
"""Characters of one text; a longer one is left out, because each metadata request would carry it."""
_DISTRIBUTIONS: Final = {
    "onnx": "onnxruntime", "torch": "torch", "openvino": "openvino", "tensorflow": "tensorflow",
    "sklearn": "scikit-learn", "xgboost": "xgboost", "lightgbm": "lightgbm", "catboost": "catboost",
    "transformers": "transformers",
}  # fmt: skip
_OF_MLFLOW: Final = ("run_id", "model_id", "model_uuid", "artifact_path", "mlflow_version", "utc_time_created")
MAX_ENTRIES: Final = 64
log = logging.getLogger(__name__)


def make_card(config: ModelConfig, folder: ModelFolder, number: int) -> dict[str, str]:
    """The card of a version. Blocks for the disk: it reads every file of the version once, until the files change.

    A file that cannot be read is missing in the card, and the log tells why.
    """
    place = folder.version(number)
    card = dict(config.card)
    card |= {"version": str(number), "source": _source(folder, number), "framework": config.backend}
    if framework := _framework_version(config.backend):
        card["framework_version"] = framework
    try:
        card["checksum"] = f"sha256:{checksum(place, folder.stamps[number])}"
        card |= _of_mlflow(place)
        card |= _statistics(place, folder.path)
    except (OSError, ConfigError) as error:
        log.warning("%s version %d: its card is incomplete: %s", folder.name, number, error)
    texts = ((_encodable(name), _encodable(text)) for name, text in islice(card.items(), MAX_ENTRIES))
    return {name: text for name, text in texts if text and len(text) <= MAX_TEXT}


def _encodable(text: str) -> str:
    """A text that any encoder takes: YAML and JSON may have halves of characters."""
    return text.encode(errors="replace").decode()


@lru_cache(maxsize=1024)
def checksum(folder: Path, stamp: str) -> str:
    """SHA-256 of the list of a folder's files, as `sha256sum` writes it: digest, two spaces, path, in order of paths.

    Blocks for the disk. `stamp` changes with the files: an unchanged version is read once. Raises OSError.
    """
    if folder.is_file():
        return _digest(folder)
    listed = sorted((path.relative_to(folder).as_posix(), path) for path in files(folder))
    lines = "".join(f"{_digest(path)}  {name}\n" for name, path in listed)
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _source(folder: ModelFolder, number: int) -> str:
    """The address of the files, or their place in a local repository. Clients see no path of this machine."""
    place, base = folder.version(number), folder.origin or f"repository:{folder.name}"
    return base if place == folder.path else f"{base}/{place.name}"


def _framework_version(backend: str) -> str:
    """The version of the installed framework; empty for a backend without one."""
    try:
        return importlib.metadata.version(_DISTRIBUTIONS[backend])
    except (KeyError, importlib.metadata.PackageNotFoundError):
        return ""


def _of_mlflow(folder: Path) -> dict[str, str]:
    """What `MLmodel` has: the run, the signature, and the versions of the libraries of the training."""
    path = folder / foreign.MLFLOW
    if not path.is_file():
        return {}
    written = foreign_files.mapping(path, yaml.safe_load)
    texts = {name: text for name in _OF_MLFLOW if (text := _plain(written.get(name)))}
    for fields in islice(_mappings(written.get("flavors")), MAX_ENTRIES):
        texts |= {name: text for name, text in _plain_fields(fields).items() if name.endswith("_version")}
    if isinstance(signature := written.get("signature"), Mapping):
        texts["signature"] = json.dumps({side: _parsed(text) for side, text in _plain_fields(signature).items()})
    if isinstance(metadata := written.get("metadata"), Mapping):
        texts |= {f"metadata.{name}": text for name, text in _plain_fields(metadata).items()}
    return {f"mlflow.{name}": text for name, text in texts.items()}


def _mappings(value: object) -> Iterator[Mapping[Any, Any]]:
    return (one for one in (value.values() if isinstance(value, Mapping) else ()) if isinstance(one, Mapping))


def _plain_fields(fields: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): text for name, value in fields.items() if (text := _plain(value))}


def _plain(value: object) -> str:
    """A scalar as a text. Empty for a list or an object: with YAML's aliases its text may have any size."""
    return "" if value is None or isinstance(value, list | set | tuple | Mapping) else str(value)


def _parsed(text: str) -> object:
    """A side of a signature, which is JSON in a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _statistics(*folders: Path) -> dict[str, str]:
    for folder in folders:
        if (path := folder / STATISTICS).is_file():
            return {"statistics": json.dumps(foreign_files.mapping(path, json.loads))}
    return {}
