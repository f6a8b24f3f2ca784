"""Images of an OCI registry. An image of models (a ModelCar) has them in `/models`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlencode, urlsplit

from adapters.stores.http import Http, Unauthorized, bounded
from adapters.stores.source import StoredObject, StoreError, checked_sha256
from config.stores import StoreAddress

MAX_MANIFEST: Final = 4 << 20
MAX_LAYERS: Final = 1000
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
)  # fmt: skip
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
)  # fmt: skip
_TITLE: Final = "org.opencontainers.image.title"
_IMAGE_LAYER: Final = re.compile(
    r"application/vnd\.(oci\.image\.layer\.(nondistributable\.)?v1\.tar|docker\.image\.rootfs\.(foreign\.)?diff\.tar)"
    r"([.+]\w+)?"
)
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')


class RegistryImage:
    """The files of an image: those of `models/` in layers of images, or the named files of an artifact."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._http = Http(self._fields)
        self._tokens = Http()
        self._authorization = ""

    async def _fields(self) -> Mapping[str, str]:
        return {"authorization": self._authorization} if self._authorization else {}

    async def items(self) -> list[StoredObject]:
        manifest = await self._manifest(self._address.revision)
        if "manifests" in manifest:
            manifest = await self._manifest(_chosen(manifest, self._address.label))
        try:
            layers = [_item(layer) for layer in manifest["layers"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise StoreError(f"{self._address.label}: the manifest has another form") from None
        if len(layers) > MAX_LAYERS:
            raise StoreError(f"{self._address.label} has more than {MAX_LAYERS} layers")
        return layers

    async def _manifest(self, reference: str) -> dict[str, Any]:
        url = f"{self._address.url}/manifests/{reference}"
        try:
            body = await self._get(url)
        except Unauthorized as error:
            await self._authorize(error.challenge)
            body = await self._get(url)
        if ":" in reference and f"sha256:{hashlib.sha256(body).hexdigest()}" != checked_sha256(reference):
            raise StoreError(f"{self._address.label}: the manifest differs from its digest")
        try:
            manifest = json.loads(body)
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict):
            raise StoreError(f"{self._address.label}: the manifest is no JSON object")
        return manifest

    async def _get(self, url: str) -> bytes:
        async with self._http.request("GET", url, {"accept": ", ".join((*_MANIFESTS, *_INDEXES))}) as response:
            return await bounded(response, MAX_MANIFEST)

    async def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        url = f"{self._address.url}/blobs/{item.key}"
        try:
            async for chunk in self._http.read(url, offset):
                offset += len(chunk)
                yield chunk
        except Unauthorized as error:  # the token has expired since the manifest, or the layer before
            await self._authorize(error.challenge)
            async for chunk in self._http.read(url, offset):
                yield chunk

    async def aclose(self) -> None:
        await self._http.aclose()
        await self._tokens.aclose()

    # ── the credential ────────────────────────────────────────────────────────────────────────────────

    async def _authorize(self, challenge: str) -> None:
        """Answer the challenge of a registry. Raises `StoreError`."""
        scheme, _, rest = challenge.partition(" ")
        login = _login(self._address.host)
        if scheme.lower() == "basic" and login:
            self._authorization = login
            return
        parameters = dict(_CHALLENGE.findall(rest))
        realm = parameters.get("realm", "")
        if scheme.lower() != "bearer" or not realm:
            raise StoreError(f"{self._address.label}: the registry demands a login: put one into DOCKER_AUTH_CONFIG")
        if urlsplit(realm).scheme != "https" and self._address.url.startswith("https:"):
            raise StoreError(f"{self._address.label}: the registry issues tokens without TLS")
        query = {"scope": parameters.get("scope") or f"repository:{self._address.project}:pull"}
        if service := parameters.get("service"):
            query["service"] = service
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        answer, _ = await self._tokens.json(url, {"authorization": login} if login else None)
        token = (answer.get("token") or answer.get("access_token")) if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise StoreError(f"{self._address.label}: the registry has issued no token")
        self._authorization = f"Bearer {token}"


def _chosen(index: Mapping[str, Any], label: str) -> str:
    """The digest of one image of an index: that of Linux on a usual processor, else the first. Models are the same."""
    try:
        there = [each for each in index["manifests"] if each.get("platform", {}).get("os") != "unknown"]
        usual = [each for each in there if each.get("platform", {}).get("architecture") == "amd64"]
        return checked_sha256((usual or there)[0]["digest"])
    except (KeyError, IndexError, TypeError, AttributeError):
        raise StoreError(f"{label}: the index has no image") from None


def _item(layer: Mapping[str, Any]) -> StoredObject:
    """A layer by its digest. Raises `StoreError`, and the errors of another form."""
    kind, digest = str(layer["mediaType"]), checked_sha256(layer["digest"])
    archive: Literal["", "tar", "layer"] = "layer" if _IMAGE_LAYER.fullmatch(kind) else ""
    path = str((layer.get("annotations") or {}).get(_TITLE) or "")
    if not archive and (".tar" in kind or path.endswith((".tar", ".tar.gz", ".tgz", ".tar.zst"))):
        return StoredObject("", digest, digest, int(layer["size"]), digest, "tar")
    if not archive and not path:
        raise StoreError(f"the layer {digest[:19]} of the type {kind[:80]!r} has no name")
    return StoredObject("" if archive else path, digest, digest, int(layer["size"]), digest, archive)


def _login(host: str) -> str:
    """The `Basic` login of a registry, as `docker login` stores it; empty without one."""
    text = os.environ.get("DOCKER_AUTH_CONFIG", "")
    folder = os.environ.get("DOCKER_CONFIG") or str(Path.home() / ".docker")
    try:
        auths = json.loads(text or (Path(folder) / "config.json").read_text())["auths"]
        for name in (host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"):
            if isinstance(entry := auths.get(name), dict):
                encoded = entry.get("auth") or _encoded(entry["username"], entry["password"])
                return f"Basic {encoded}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return ""


def _encoded(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()
