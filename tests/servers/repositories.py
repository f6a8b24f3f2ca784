"""Model repositories that a real Triton and our runtime both serve, with the same arithmetic in them."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

MODELS = Path(__file__).parent / "models"
ENSEMBLES = Path(__file__).parent / "ensembles"
OF_ENSEMBLES = ("accumulate", "add_sub", "negate", "picky", "repeat", "slow", "text")
NAMES = tuple(sorted(folder.name for folder in MODELS.iterdir() if (folder / "config.pbtxt").exists()))


def for_triton(folder: Path, names: Iterable[str] = NAMES) -> Path:
    """The models in the form of Triton's python backend."""
    for name in names:
        version = _version(folder, name)
        shutil.copy(_source(name) / "model.py", version / "headrace_model.py")
        shutil.copy(MODELS / "bridge.py", version / "model.py")
    return folder


def for_headrace(folder: Path, names: Iterable[str] = NAMES) -> Path:
    """The models in the form of our runtime."""
    for name in names:
        shutil.copy(_source(name) / "model.py", _version(folder, name))
    return folder


def with_ensembles(folder: Path) -> Path:
    """A repository with the ensembles beside their models, `OF_ENSEMBLES`, which either function above has added."""
    for source in ENSEMBLES.iterdir():
        if not (source / "model.py").exists():
            (folder / source.name / "1").mkdir(parents=True)
            shutil.copy(source / "config.pbtxt", folder / source.name)
    return folder


def pipelines() -> dict[str, Any]:
    """The graphs of the ensembles as pipelines of the gateway, by name: `p_` and that of the ensemble."""
    return dict(yaml.safe_load((ENSEMBLES.parent / "pipelines.yaml").read_text()))


def _source(name: str) -> Path:
    return next(folder / name for folder in (MODELS, ENSEMBLES) if (folder / name).is_dir())


def _version(folder: Path, name: str) -> Path:
    version = folder / name / "1"
    version.mkdir(parents=True)
    shutil.copy(_source(name) / "config.pbtxt", folder / name)
    return version
