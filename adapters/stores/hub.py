"""Projects of the Hugging Face hub, or of a server with its HTTP API (`HF_ENDPOINT`)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from adapters.stores.http import Http
from adapters.stores.source import StoredObject, StoreError, checked_sha256
from config.stores import StoreAddress

HUB: Final = "https://huggingface.co"
_YES: Final = ("1", "ON", "YES", "TRUE")


class HubProject:
    """The files of one revision of a project, of a folder in it, or one file. Each has a digest."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._endpoint = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
        self._http = Http(_fields)

    async def items(self) -> list[StoredObject]:
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES:
            raise StoreError("HF_HUB_OFFLINE forbids requests to the hub")
        address = self._address
        revision = quote(address.revision, safe="")
        url = f"{self._endpoint}/api/models/{address.project}/revision/{revision}?blobs=true"
        answer, _ = await self._http.json(url)
        try:
            commit, files = str(answer["sha"]), [_file(sibling) for sibling in answer["siblings"]]
        except (KeyError, TypeError, ValueError):
            raise StoreError(f"{address.label}: the answer of the hub has another form") from None
        items = [
            StoredObject(inner, path, commit, size, digest)
            for path, size, digest in files
            if (inner := _within(path, address.path)) is not None
        ]
        if not items:
            raise StoreError(f"{address.label}: there is no such file or folder in revision {commit[:12]}")
        return items

    def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        path = quote(item.key)
        return self._http.read(f"{self._endpoint}/{self._address.project}/resolve/{item.version}/{path}", offset)

    async def aclose(self) -> None:
        await self._http.aclose()


def _file(sibling: Mapping[str, Any]) -> tuple[str, int, str]:
    """Path, size and digest: large files have that of their content, small ones that of git."""
    path, large = str(sibling["rfilename"]), sibling.get("lfs")
    if large:
        sha256 = large.get("sha256") or str(large["oid"]).removeprefix("sha256:")
        return path, int(large["size"]), checked_sha256(f"sha256:{sha256}")
    return path, int(sibling["size"]), f"git:{sibling['blobId']}"


def _within(path: str, folder: str) -> str | None:
    """The path within a folder; None for a file that is not in it, or that only git reads."""
    if path.rpartition("/")[2].startswith(".git"):
        return None
    if path == folder:
        return path.rpartition("/")[2]
    if not folder:
        return path
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else None


async def _fields() -> Mapping[str, str]:
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}
