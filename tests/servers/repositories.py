"""Model repositories that a real Triton and our runtime both serve, with the same arithmetic in them."""

import shutil
from collections.abc import Iterable
from pathlib import Path

MODELS = Path(__file__).parent / "models"
NAMES = tuple(sorted(folder.name for folder in MODELS.iterdir() if (folder / "config.pbtxt").exists()))


def for_triton(folder: Path, names: Iterable[str] = NAMES) -> Path:
    """The models as Triton's python backend wants them."""
    for name in names:
        version = _version(folder, name)
        shutil.copy(MODELS / name / "model.py", version / "headrace_model.py")
        shutil.copy(MODELS / "bridge.py", version / "model.py")
    return folder


def for_headrace(folder: Path, names: Iterable[str] = NAMES) -> Path:
    """The models as ours wants them."""
    for name in names:
        shutil.copy(MODELS / name / "model.py", _version(folder, name))
    return folder


def _version(folder: Path, name: str) -> Path:
    version = folder / name / "1"
    version.mkdir(parents=True)
    shutil.copy(MODELS / name / "config.pbtxt", folder / name)
    return version
