"""Paths of servers of OpenAI's family, below the configured URL."""

import re

from adapters.paths import segment

_API = re.compile(r"/v\d+$")


class Paths:
    """The paths of one server.

    `base` is the path of the URL, with or without the API's root (`/v1`, `/openai/v1`, `/v3`) at its end. `version` is
    Azure's: models are then deployments, each with paths of its own.
    """

    __slots__ = ("_deployments", "_fixed", "_version", "api", "server")

    def __init__(self, base: str, root: str, version: str | None = None) -> None:
        has_version = _API.search(base) is not None
        self.server = (_API.sub("", base) if has_version else base).removesuffix("/openai")
        self.api = base if has_version else self.server + root
        self._version = version
        self._deployments = f"{self.server}/openai/deployments/"
        self._fixed: dict[str, bytes] = {}

    def call(self, path: str, model: str) -> bytes:
        """Return the target of a path below the API's root. The few paths in use are cached."""
        if self._version is not None:
            return f"{self._deployments}{segment(model)}{path}?api-version={self._version}".encode()
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
