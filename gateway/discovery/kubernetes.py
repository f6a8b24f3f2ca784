"""Endpoints of a Kubernetes service: its EndpointSlices, listed and watched."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from config.schema.config import KubernetesConfig
from gateway.discovery.slices import Slice, targets
from gateway.discovery.target import DiscoveryError, Report

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500
MAX_LINE = 8 * 1024**2
"""Bytes of a page of slices or of an event; a slice has at most 1000 endpoints."""
MAX_SLICES = 5_000
ANSWER_SECONDS = 10.0
PAUSE_SECONDS = 0.2
"""Seconds between two requests, for a server that ends each watch at once."""
LATE_SECONDS = 5.0
"""Seconds that a watch may exceed its requested duration: after that its connection is considered half open."""


class _GoneError(Exception):
    """The version of the watch is too old: a new list is required."""


class EndpointSlices:
    """Lists the slices, then watches for changes from the list's version, repeatedly.

    Every `resync` the list is read again, independent of the watch, so that a lost event cannot preserve a dead
    endpoint. A watch that the server ends earlier continues from the last version received (bookmarks count); after 410
    Gone the list is read again.
    """

    def __init__(self, config: KubernetesConfig, scheme: str) -> None:
        self._config = config
        self._scheme = scheme
        self._api = Access(config)
        self._slices: dict[str, Slice] = {}
        self._version = ""

    async def follow(self, report: Report) -> None:
        try:
            async with self._api.session() as http:
                while True:
                    await self._list(http)
                    self._report_targets(report)
                    await self._watch_until_resync(http, report)
                    await asyncio.sleep(PAUSE_SECONDS)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DiscoveryError(f"the Kubernetes API cannot be reached: {error or type(error).__name__}") from None
        except (msgspec.DecodeError, AttributeError, TypeError, KeyError):
            raise DiscoveryError("the Kubernetes API's response is not a list of EndpointSlices") from None

    async def _watch_until_resync(self, http: aiohttp.ClientSession, report: Report) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._config.resync
        try:
            while (seconds := until - loop.time()) > 0:
                await self._watch(http, seconds, report)
                await asyncio.sleep(PAUSE_SECONDS)
        except _GoneError:
            return

    async def _list(self, http: aiohttp.ClientSession) -> None:
        slices: dict[str, Slice] = {}
        params = {"limit": str(PAGE)}
        while True:
            async with asyncio.timeout(ANSWER_SECONDS), self._api.get(http, params) as response:
                _check(response)
                page = msgspec.json.decode(await _bounded(response))
            slices |= {item["metadata"]["name"]: item for item in page.get("items") or ()}
            if len(slices) > MAX_SLICES:
                raise DiscoveryError(f"the service has more than {MAX_SLICES} EndpointSlices")
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            params = {"limit": str(PAGE), "continue": metadata["continue"]}
        self._slices, self._version = slices, str(metadata.get("resourceVersion") or "")

    async def _watch(self, http: aiohttp.ClientSession, seconds: float, report: Report) -> None:
        params = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        try:
            async with asyncio.timeout(seconds + LATE_SECONDS), self._api.get(http, params) as response:
                if response.status == 410:
                    raise _GoneError
                _check(response)
                async for line in _lines(response):
                    if self._take(msgspec.json.decode(line)):
                        self._report_targets(report)
        except TimeoutError:
            return

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Apply an event. Returns whether it changed the slices."""
        kind, item = event.get("type"), event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise _GoneError
            raise DiscoveryError(f"the Kubernetes API ended the watch: {str(item.get('message'))[:200]}")
        metadata = item["metadata"]
        self._version = str(metadata.get("resourceVersion") or self._version)
        if kind in ("ADDED", "MODIFIED"):
            self._slices[metadata["name"]] = item
        elif kind == "DELETED":
            self._slices.pop(metadata["name"], None)
        return kind in ("ADDED", "MODIFIED", "DELETED")

    def _report_targets(self, report: Report) -> None:
        config = self._config
        name = f"{config.service}.{self._api.namespace}.svc"
        report(targets(self._slices.values(), self._scheme, config.port, name))


class Access:
    """The connection to the API server, from inside the cluster or as configured. Raises `DiscoveryError`."""

    def __init__(self, config: KubernetesConfig) -> None:
        self.namespace = config.namespace or _read(ACCOUNT / "namespace", "kubernetes.namespace")
        self._token = Path(config.token_file) if config.token_file else None if config.server else ACCOUNT / "token"
        server = config.server or _in_cluster()
        self._tls: ssl.SSLContext | bool = True
        if server.startswith("https://"):
            ca = config.ca or (None if config.server else str(ACCOUNT / "ca.crt"))
            try:
                self._tls = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise DiscoveryError(f"{ca}: {error}") from None
        self._url = f"{server.rstrip('/')}/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={config.service}"

    def session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=2)
        return aiohttp.ClientSession(connector=connector, timeout=timeout)

    def get(self, http: aiohttp.ClientSession, params: Mapping[str, str]) -> Any:
        """One request. The token is read each time: a service account's is renewed every hour."""
        headers = {"accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {_read(self._token, 'kubernetes.token_file')}"
        return http.get(
            self._url, params={"labelSelector": self._selector, **params}, headers=headers, allow_redirects=False
        )


def _in_cluster() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise DiscoveryError("this is not a Kubernetes pod: give kubernetes.server")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read(path: Path, instead: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise DiscoveryError(f"{path} cannot be read: give {instead}, or make it readable") from None


def _check(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        hint = ": its role must list and watch endpointslices" if response.status in (401, 403) else ""
        raise DiscoveryError(f"the Kubernetes API answered {response.status}{hint}")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_LINE:
            raise DiscoveryError(f"the Kubernetes API's answer is larger than {MAX_LINE // 1024**2} MiB")
    return bytes(body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > MAX_LINE:
            raise DiscoveryError(f"an event of the Kubernetes API is larger than {MAX_LINE // 1024**2} MiB")
