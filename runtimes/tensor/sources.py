"""Imports the modules of models from their source files, never from cached bytecode.

Python takes cached bytecode for current if the source has the same size and was modified in the same second. A model
that is written twice within a second, with a source of the same size, would be loaded in its first form.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType

_folders: set[str] = set()


class UncachedLoader(SourceFileLoader):
    """Compiles the source at each import. Neither reads nor writes bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_uncached(folder: Path) -> None:
    """Import the modules below a folder by `UncachedLoader` from now on, and notice files that were added to it."""
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    _folders.add(os.path.abspath(folder))
    for path in list(sys.path_importer_cache):
        if _is_below(path):
            sys.path_importer_cache.pop(path, None)


def _finder(path: str) -> FileFinder:
    """The hook of `sys.path_hooks`. Raises `ImportError` for folders without models."""
    if not _is_below(path):
        raise ImportError
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (UncachedLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def _is_below(path: str) -> bool:
    path = os.path.abspath(path)
    while path not in _folders:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True
