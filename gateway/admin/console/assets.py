"""The files of the page, read once, with entity tags."""

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

from gateway.admin.console.headers import PAGE_POLICY

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class Asset(NamedTuple):
    """A file and its headers."""

    body: bytes
    compressed: bytes
    content_type: str
    tag: str

    def respond(self, request: web.Request) -> web.Response:
        """The file, or 304 for a browser that has it."""
        headers = {"ETag": f'"{self.tag}"', "Cache-Control": "no-cache", "Content-Security-Policy": PAGE_POLICY}
        if any(tag.value in (self.tag, "*") for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.compressed, content_type=self.content_type, charset="utf-8", headers=headers)
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)


def read_assets() -> dict[str, Asset]:
    """All files under `static/`, by their path. A request can name no other file."""
    return dict(_read(files("gateway.admin.console").joinpath("static"), ""))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    assets: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            assets += _read(entry, f"{path}/")
        elif content_type := _TYPES.get(path.rpartition(".")[2]):
            body = entry.read_bytes()
            assets.append(
                (path, Asset(body, gzip.compress(body, mtime=0), content_type, hashlib.sha256(body).hexdigest()[:32]))
            )
    return assets
