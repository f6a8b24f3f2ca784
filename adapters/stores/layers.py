"""The files of several objects together: those of layers lie over each other, as in an image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adapters.stores.cache import CachedFile
from adapters.stores.source import StoredObject, StoreError

WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
"""Removes what earlier layers have in its folder."""


def together(objects: Iterable[tuple[StoredObject, list[CachedFile]]]) -> list[CachedFile]:
    """All files, in the order of the objects. Raises `StoreError` for a path that is there twice.

    A file of a layer replaces that of an earlier one, and a whiteout removes what earlier ones have.
    """
    files: dict[str, CachedFile] = {}
    for item, contents in objects:
        if item.archive == "layer":
            for one in contents:
                _white_out(files, one.path)
            contents = [one for one in contents if not one.path.rpartition("/")[2].startswith(WHITEOUT)]
        for one in contents:
            path = one.path if item.archive else item.path
            if path in files and item.archive != "layer":
                raise StoreError(f"{path[:100]!r} is there twice")
            files[path] = one._replace(path=path)
    return list(files.values())


def _white_out(files: dict[str, CachedFile], path: str) -> None:
    folder, slash, name = path.rpartition("/")
    if not name.startswith(WHITEOUT):
        return
    removed = folder if name == OPAQUE else f"{folder}{slash}{name.removeprefix(WHITEOUT)}"
    for other in [other for other in files if other == removed or other.startswith(f"{removed}/") or not removed]:
        del files[other]
