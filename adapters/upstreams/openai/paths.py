"""Paths of servers of OpenAI's family, below the configured URL."""

import re

from adapters.paths import segment

_API = re.compile(
    r"(/openai)?/v\d+((alpha|beta)\d*)?(/openai)?$|/v\d+/[^/]+/[^/]+/compat$|/endpoints/openapi$|/serving-endpoints$"
)
"""Roots at the end of documented URLs: with a version (Gemini, DeepInfra), of Cloudflare, Vertex AI and Databricks."""


_BESIDE = frozenset({"/responses"})
"""Azure's operations whose model is in the body, beside the deployments."""


def names_root(base: str) -> bool:
    """Whether the path of a URL ends with an API's root."""
    return _API.search(base) is not None


class Paths:
    """The paths of one server.

    `base` is the path of the URL. The API's root is `own`, below the URL unless the URL ends with it; or else the root
    at the end of the URL, which may be `root`; or else `root`, below the URL. `version` is Azure's: models are then
    deployments, each with paths of its own.
    """

    __slots__ = ("_deployments", "_fixed", "_version", "api", "server")

    def __init__(self, base: str, root: str, version: str | None = None, own: str | None = None) -> None:
        if own is None and (written := _API.search(base)) is not None:
            longer = len(root) > len(written[0]) and base.endswith(root)
            root = root if longer else written[0]
        elif own is None:
            base = base.removesuffix("/openai")
        else:
            root = own.rstrip("/")
        self.server = base.removesuffix(root)
        self.api = self.server + root
        self._version = version
        self._deployments = f"{self.server}/openai/deployments/"
        self._fixed: dict[str, bytes] = {}

    def call(self, path: str, model: str) -> bytes:
        """Return the target of a path below the API's root. The few paths in use are cached."""
        if self._version is not None:
            below = f"{self.server}/openai" if path in _BESIDE else f"{self._deployments}{segment(model)}"
            return f"{below}{path}?api-version={self._version}".encode()
        target = self._fixed.get(path)
        if target is None:
            target = self._fixed[path] = (self.api + path).encode()
        return target

    def models(self) -> bytes:
        """Return the target of the list of models."""
        if self._version is not None:
            return f"{self.server}/openai/models?api-version={self._version}".encode()
        return f"{self.api}/models".encode()

    def at_the_server(self, path: str) -> bytes:
        """Return the target of a path outside the API."""
        return (self.server + path).encode()
