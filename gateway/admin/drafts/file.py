"""The file of the configuration: its revision, whether it may be replaced, and the replacement.

Every function blocks for the disk: call it in a thread from async code.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from config.document import MAX_BYTES
from config.schema.config import Config


class FileContent(NamedTuple):
    """The content of the file, and its revision: the SHA-256 of its bytes."""

    data: bytes
    revision: str


class NotEditable(Exception):
    """The file may not be replaced. The message has the reason and the remedy."""


def content_of(path: Path) -> FileContent:
    """Read the file. Raises `OSError`."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    return FileContent(data, revision_of(data))


def revision_of(data: bytes) -> str:
    """The revision of a content."""
    return hashlib.sha256(data).hexdigest()


def check_enabled(config: Config) -> None:
    """Whether the admin API may replace a file at all. Raises `NotEditable`."""
    if not config.auth.admin.edit:
        raise NotEditable("changes over the admin API are not enabled: set `auth: {admin: {edit: true}}` in the file")


def check_editable(path: Path, config: Config) -> None:
    """Raises `NotEditable`."""
    target = path.resolve()
    check_enabled(config)
    for folder in target.parents:
        if (folder / ".git").exists():
            raise NotEditable(f"{path} is in the Git work tree {folder}: change it there")
    if not os.access(target, os.W_OK) or not os.access(target.parent, os.W_OK):
        raise NotEditable(f"{path} or its folder is read-only for the gateway: change it at its source")


def replace_content(path: Path, data: bytes) -> None:
    """Replace the file as a whole, with its owner and its mode. Raises `OSError`; the old content then stays.

    A link stays a link: the file that it names is replaced.
    """
    target = path.resolve()
    status = target.stat()
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            with contextlib.suppress(PermissionError):  # another user owns the file; its group may write
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
