"""The addresses of model repositories: a folder, or a place from which its files are pulled.

The configuration checks an address, and the runtime that pulls it reads its parts.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_FORMS: Final[Mapping[str, str]] = {
    "file": "file:///FOLDER",
}
"""The form of an address of each scheme."""


class StoreAddress(NamedTuple):
    """The parts of an address that is pulled."""

    scheme: str
    text: str
    """The whole address, as it was written."""


def folder_of(text: str) -> Path | None:
    """The folder of an address that is served where it is; None for one that is pulled. Raises `ValueError`."""
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    if match[1].lower() != "file":
        address_of(text)
        return None
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ValueError(f"expected {_FORMS['file']}, or a path without file://")
    return Path(unquote(parts.path))


def address_of(text: str) -> StoreAddress:
    """The parts of an address that is pulled. Raises `ValueError` for any other text."""
    scheme = text.partition("://")[0].lower()
    if scheme not in _FORMS:
        raise ValueError(f"repositories have the schemes {', '.join(_FORMS)}, and not {scheme[:32]}")
    return StoreAddress(scheme, text)


def check_repository(text: str) -> str:
    """Return the address of a repository. Raises `ValueError` for one that cannot be read."""
    folder_of(text)
    return text
