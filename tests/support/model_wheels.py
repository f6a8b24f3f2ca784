"""Packages with a model in them, for pip."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from runtimes.wheels import Wheel, WheelMember


def model_wheel(folder: Path, name: str, file: str, content: bytes, stored: str = "") -> tuple[Path, Wheel]:
    """A wheel that holds `file`, and its description, in which the file is `stored` under another name."""
    folder.mkdir(exist_ok=True)
    package = name.replace("-", "_")
    path, info = folder / f"{package}-1.0-py3-none-any.whl", f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(file, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    member = WheelMember(file, len(content), hashlib.sha256(content).hexdigest())
    return path, Wheel(f"{name}==1.0", path.stat().st_size, {stored or Path(file).name: member})


def only_index(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find packages in `folder` only."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("HEADRACE_CACHE", str(cache))
