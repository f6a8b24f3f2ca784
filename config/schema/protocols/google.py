"""Google's Gemini: the Gemini API, and Vertex AI."""

from typing import Annotated, Literal

from config.schema.protocols.base import ProtocolConfig
from config.schema.text import Shape

ApiVersion = Annotated[str, Shape(r"v\d[a-z0-9]{0,15}", "a version such as v1beta")]
Project = Annotated[str, Shape(r"[a-z0-9][a-z0-9.:-]{0,127}", "a project's id or number")]
Location = Annotated[str, Shape(r"[a-z][a-z0-9-]{0,62}", "a location such as us-central1, us, eu or global")]

GLOBAL = "global"
_HOSTS = {
    GLOBAL: "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}
"""The hosts of locations that are not one region."""
_REGIONAL = "-aiplatform.googleapis.com"


def vertex_host(location: str) -> str:
    """The host of Vertex AI for a location: a region, a jurisdiction, or ``global``."""
    return _HOSTS.get(location) or location + _REGIONAL


def location_of(host: str) -> str:
    """The location of a host of Vertex AI; ``global`` for any other host."""
    named = {own: location for location, own in _HOSTS.items()}
    return named.get(host) or (host.removesuffix(_REGIONAL) if host.endswith(_REGIONAL) else GLOBAL)


class GeminiProtocol(ProtocolConfig):
    """The Gemini API, ``https://generativelanguage.googleapis.com``. The pool's ``key`` is sent as
    ``x-goog-api-key``."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        return ("x-goog-api-key",)

    @property
    def url(self) -> str:
        return "https://generativelanguage.googleapis.com"

    @property
    def prompt_caches(self) -> Literal["marks", "contents"] | None:
        return "contents" if self.cached_contents else None

    name: Literal["gemini"]
    """Selects this protocol."""
    version: ApiVersion = "v1beta"
    """Version of the API in the path, unless the URL of the endpoint ends with one."""
    cached_contents: bool = True
    """Keep the marked beginnings of prompts (``cache_control`` of a request, ``prompt_cache`` of a pool) as cached
    contents, which Google stores for a price. Without it, such marks are left out."""


class VertexProtocol(ProtocolConfig):
    """Gemini on Vertex AI, ``https://LOCATION-aiplatform.googleapis.com``."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        """The express mode has keys; a project has tokens."""
        return ("authorization",) if self.project is not None else ("x-goog-api-key",)

    @property
    def url(self) -> str:
        return f"https://{vertex_host(self.location or GLOBAL)}"

    @property
    def prompt_caches(self) -> Literal["marks", "contents"] | None:
        """The express mode has no cached contents."""
        return "contents" if self.cached_contents and self.project is not None else None

    name: Literal["vertex"]
    """Selects this protocol."""
    project: Project | None = None
    """Google Cloud project. Without one, the pool's ``key`` is that of the express mode."""
    location: Location | None = None
    """Location of the models. When absent, that of the endpoint's host, such as ``us-central1``; ``global`` for any
    other host."""
    version: ApiVersion = "v1"
    """Version of the API in the path, unless the URL of the endpoint ends with one."""
    cached_contents: bool = True
    """Keep the marked beginnings of prompts (``cache_control`` of a request, ``prompt_cache`` of a pool) as cached
    contents, which Google stores for a price. Without it, such marks are left out."""
