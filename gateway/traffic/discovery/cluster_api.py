"""Requests to a Kubernetes API server, from inside the cluster or as configured."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from adapters.wire.decoding import whole_number
from config.schema.discovery import ClusterConfig
from gateway.traffic.discovery.target import DiscoveryError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS = 10.0
LONGEST_PAUSE = 60.0
"""Seconds of the longest pause that the API server may require."""


class NoSuchResource(DiscoveryError):
    """The API server does not have a resource."""


class ClusterApi:
    """The connection to the API server. Raises `DiscoveryError`; `section` names the fields in its messages."""

    def __init__(self, config: ClusterConfig, section: str) -> None:
        self._section = section
        self.namespace = config.namespace or self._read(ACCOUNT / "namespace", "namespace")
        self._token = Path(config.token_file) if config.token_file else None if config.server else ACCOUNT / "token"
        self._server = (config.server or self._in_cluster()).rstrip("/")
        self._tls: ssl.SSLContext | bool = True
        if self._server.startswith("https://"):
            ca = config.ca or (None if config.server else str(ACCOUNT / "ca.crt"))
            try:
                self._tls = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise DiscoveryError(f"{ca}: {error}") from None

    def session(self) -> aiohttp.ClientSession:
        """A session for the requests of one source."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=4)
        return aiohttp.ClientSession(connector=connector, timeout=timeout)

    def get(self, http: aiohttp.ClientSession, path: str, params: Mapping[str, str]) -> Any:
        """One request. The token is read each time: a service account's is renewed every hour."""
        headers = {"accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._read(self._token, 'token_file')}"
        return http.get(f"{self._server}{path}", params=params, headers=headers, allow_redirects=False)

    def _in_cluster(self) -> str:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise DiscoveryError(f"this is not a Kubernetes pod: give {self._section}.server")
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def _read(self, path: Path, instead: str) -> str:
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise DiscoveryError(
                f"{path} cannot be read: give {self._section}.{instead}, or make it readable"
            ) from None


def check(response: aiohttp.ClientResponse, resource: str) -> None:
    """Raise `DiscoveryError` unless the response has status 200."""
    if response.status == 200:
        return
    if response.status == 404:
        raise NoSuchResource(f"the Kubernetes API has no {resource}")
    hint = f": its role must list and watch {resource}" if response.status in (401, 403) else ""
    raise DiscoveryError(f"the Kubernetes API answered {response.status}{hint}", _pause(response))


def _pause(response: aiohttp.ClientResponse) -> float:
    """The seconds after which the API server accepts requests again, if it is overloaded."""
    return min(float(whole_number(response.headers.get("retry-after", "")) or 0), LONGEST_PAUSE)
