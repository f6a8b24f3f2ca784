"""Folders of this host where data waits for the state database."""

import hashlib
import os
import tempfile
from pathlib import Path

from gateway.errors import StartError
from gateway.state.database import sqlite_path
from gateway.state.private_folder import make_private


def local_folder(database: str, name: str, chosen: str | None) -> Path:
    """The chosen folder; or one beside an SQLite database, else in the directory of temporary files."""
    if chosen is not None:
        return Path(chosen)
    path = sqlite_path(database)
    if path is not None:
        return path.with_name(f"{path.name}.{name}")
    digest = hashlib.sha256(database.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"headrace-{name}-{os.geteuid()}-{digest}"


def prepare_private(folder: Path, section: str) -> None:
    """Create the folder for this user alone. Raises `StartError`."""
    try:
        make_private(folder)
        status = folder.stat()
    except OSError as error:
        raise StartError(f"{section}: {folder}: {error.strerror or error}") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StartError(
            f"{section}: {folder}: other users may write here: `{section}.folder` must be of this user alone"
        )
