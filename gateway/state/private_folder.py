"""Folders for this user alone."""

from pathlib import Path


def make_private(folder: Path) -> None:
    """Create a folder and the missing folders around it; an existing one is not changed. Raises `OSError`.

    `Path.mkdir` gives its mode to the last folder only.
    """
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
