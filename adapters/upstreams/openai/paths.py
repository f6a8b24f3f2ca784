"""Where a server of OpenAI's family has what, below the URL that it is written with."""

import re

from adapters.paths import segment

_API = re.compile(r"/v\d+$")


class Paths:
    """`base` is the URL's path: it may end with the API's root (`/v1`, `/openai/v1`, `/v3`), or be above it.

    `version` is Azure's: models are deployments then, each with paths of its own.
    """

    __slots__ = ("_deployments", "_fixed", "_version", "api", "server")

    def __init__(self, base: str, root: str, version: str | None = None) -> None:
        says = _API.search(base) is not None
        self.server = (_API.sub("", base) if says else base).removesuffix("/openai")
        self.api = base if says else self.server + root
        self._version = version
        self._deployments = f"{self.server}/openai/deployments/"
        self._fixed: dict[str, bytes] = {}

    def call(self, path: str, model: str) -> bytes:
        """Of a path below the API's root. Those in use are few, and remembered."""
        if self._version is not None:
            return f"{self._deployments}{segment(model)}{path}?api-version={self._version}".encode()
        found = self._fixed.get(path)
        if found is None:
            found = self._fixed[path] = (self.api + path).encode()
        return found

    def models(self) -> bytes:
        """The list of them."""
        if self._version is not None:
            return f"{self.server}/openai/models?api-version={self._version}".encode()
        return f"{self.api}/models".encode()

    def at_the_server(self, path: str) -> bytes:
        """Of a path that is not the API's."""
        return (self.server + path).encode()
