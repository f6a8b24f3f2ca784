"""The base of every protocol's section."""

from typing import ClassVar, Literal

from pydantic import GetJsonSchemaHandler, SecretStr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.section import ShortSection

Serves = Literal["text", "tensors", "app"]


class ProtocolConfig(ShortSection):
    """One protocol and its options. Its name alone is short for ``{name: NAME}``."""

    short = "name"

    serves: ClassVar[frozenset[Serves]] = frozenset({"text"})
    """``text``: chats, completions, embeddings. ``tensors``: inference. ``app``: HTTP with bodies of its own."""
    has_paths: ClassVar[bool] = True
    """Whether its servers are called over HTTP, by a path."""
    resumes: ClassVar[bool] = False
    """Whether its servers can continue a text that another server began."""

    name: str
    """Name of the protocol."""

    @property
    def metrics_key(self) -> SecretStr | None:
        """The key for the metrics of its servers, if that is not the key for inference."""
        return None

    @property
    def key_headers(self) -> tuple[str, ...]:
        """The headers of the pool's key, if the pool does not set another."""
        return ("authorization",)

    @property
    def url(self) -> str | None:
        """The address of the provider's own servers, for a pool without endpoints."""
        return None

    @property
    def prompt_caches(self) -> Literal["marks", "contents"] | None:
        """How a pool has its servers keep the beginnings of prompts: by marks in the prompt, as contents with names, or
        not at all."""
        return None

    @property
    def offers(self) -> frozenset[Serves]:
        """The operations of its servers with these options."""
        return self.serves

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        name = handler.resolve_ref_schema(reference)["properties"]["name"]
        return {"anyOf": [{key: name[key] for key in ("const", "type") if key in name}, reference]}
