"""The manifest of a version, which `sha256sum * > SHA256SUMS` writes. A version that differs from it is not loaded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

NAME = "SHA256SUMS"
MAX_BYTES = 16 << 20
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


class Incomplete(Exception):
    """A file is missing, or differs from the manifest; the message names it."""


def verify(folder: Path) -> bool:
    """Whether there is a manifest and all files match it. Blocks for the disk. Raises `Incomplete`."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Incomplete(f"{NAME} cannot be read: {error.strerror}") from None
    lines = content.decode(errors="replace").splitlines()
    if len(content) > MAX_BYTES or not lines:
        raise Incomplete(f"{NAME} is empty or too large")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise Incomplete(
                f"{NAME}:{number}: expected a digest, two spaces and a file's name, as sha256sum writes it"
            )
        _check(folder, match[2], match[1].lower())
    return True


def _check(folder: Path, name: str, digest: str) -> None:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise Incomplete(f"{NAME} names {name}, which is not in this folder")
    try:
        with path.open("rb") as file:
            computed = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Incomplete(f"{name} is in {NAME}, and cannot be read: {error.strerror}") from None
    if computed != digest:
        raise Incomplete(f"{name} differs from its digest in {NAME}")
