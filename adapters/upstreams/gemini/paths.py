"""Paths of the Gemini API and of Vertex AI."""

import re

from adapters.errors import CallerError
from adapters.paths import segment

_VERSION = re.compile(r"/v\d[a-z0-9]*$")
_COLLECTIONS = ("models", "tunedModels")


class GeminiPaths:
    """The paths of one endpoint. Names of models are encoded: a client's name never leaves its place in the path."""

    def __init__(self, base: str, version: str) -> None:
        """`base` is the path of the endpoint's URL, which may end with a version of the API."""
        self.root = base if _VERSION.search(base) else f"{base}/{version}"

    def of(self, model: str, verb: str) -> str:
        """The path of a call. Raises `CallerError` for a name that cannot be a part of a path."""
        return f"{self.root}/{self.resource(model)}:{verb}"

    def resource(self, model: str) -> str:
        """The name of a model with its collection, as bodies have it too."""
        collection, slash, name = model.partition("/")
        if slash and collection in _COLLECTIONS:
            return f"{collection}/{segment(name)}"
        return f"models/{segment(model)}"

    @property
    def caches(self) -> str | None:
        """The collection of cached contents; None where there is none."""
        return f"{self.root}/cachedContents"

    def cache(self, name: str) -> str:
        """One of them, by its name with its collection."""
        return f"{self.root}/{name}"

    @property
    def health(self) -> str:
        """The list of models."""
        return f"{self.root}/models?pageSize=1"


class VertexPaths(GeminiPaths):
    """The paths of Vertex AI. Without a project they are those of the express mode."""

    def __init__(self, base: str, version: str, project: str | None, location: str) -> None:
        super().__init__(base, version)
        self._project = f"projects/{project}/locations/{location}/" if project else ""

    def resource(self, model: str) -> str:
        parts = model.split("/")
        if len(parts) > 1 and parts[0] in ("projects", "publishers", "endpoints"):
            within = "" if parts[0] == "projects" else self._project
            if parts[0] == "projects" and not model.startswith(self._project or "projects/"):
                raise CallerError("The model belongs to another project or location than its pool.", param="model")
            return within + "/".join(segment(part) for part in parts)
        if len(parts) == 2 and parts[0] != "models":  # publisher/model
            return f"{self._project}publishers/{segment(parts[0])}/models/{segment(parts[1])}"
        return f"{self._project}publishers/google/models/{segment(model.removeprefix('models/'))}"

    @property
    def caches(self) -> str | None:
        return f"{self.root}/{self._project}cachedContents" if self._project else None

    @property
    def health(self) -> str:
        """The list of Google's models, which needs no project."""
        return f"{self.root.rpartition('/')[0]}/v1beta1/publishers/google/models?pageSize=1"
