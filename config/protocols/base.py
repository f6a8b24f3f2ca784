"""What every protocol's section has."""

from typing import ClassVar, Literal

from pydantic import GetJsonSchemaHandler, SecretStr, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.section import Section

Serves = Literal["text", "tensors", "app"]


class ProtocolConfig(Section):
    """One protocol and its options. Its name alone is short for ``{name: NAME}``."""

    serves: ClassVar[frozenset[Serves]] = frozenset({"text"})
    """``text``: chats, completions, embeddings. ``tensors``: inference. ``app``: HTTP whose bodies are its own."""
    has_paths: ClassVar[bool] = True
    """Whether its servers are asked over HTTP, by a path."""
    resumes: ClassVar[bool] = False
    """Whether its servers can be asked to carry on with a text that another one began."""

    name: str
    """Name of the protocol."""

    @property
    def metrics_key(self) -> SecretStr | None:
        """Who asks for its servers' metrics, where that is another than who asks for inference."""
        return None

    @property
    def key_header(self) -> str:
        """The header that its servers expect the pool's key in, where the pool does not say another."""
        return "authorization"

    @property
    def offers(self) -> frozenset[Serves]:
        """What they do with the options as they are."""
        return self.serves

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        name = handler.resolve_ref_schema(reference)["properties"]["name"]
        return {"anyOf": [{key: name[key] for key in ("const", "type") if key in name}, reference]}
