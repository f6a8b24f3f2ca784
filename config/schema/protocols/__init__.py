"""Protocols of a pool's endpoints: one section each, with its options.

base.py         the base of every section
language.py     language models: OpenAI's API and its dialects, Anthropic's Messages, TGI, Triton's generate extension
google.py       Gemini, at the Gemini API and at Vertex AI
bedrock.py      Amazon Bedrock
tensors.py      tensors: the Open Inference Protocol, TensorFlow Serving, TorchServe; a declared tensor
apps.py         apps: any HTTP app, BentoML, KServe's v1, Ray Serve
bus.py          workers behind a message broker
egress.py       the way to the endpoints: proxies and header fields
credentials.py  credentials that the gateway makes for the endpoints
catalogue.py    the sections by name, also those of other distributions; detection of the protocol
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.protocols.base import ProtocolConfig, Serves
from config.schema.protocols.catalogue import BUILT_IN, InstalledProtocol, installed, load

__all__ = ["BUILT_IN", "AnyProtocol", "ProtocolConfig", "Serves", "section_of", "serves"]

_OTHER = "[installed]"


def _tag(value: object) -> str:
    name = value.get("name") if isinstance(value, dict) else value
    name = getattr(name, "name", name)
    return f"[{name}]" if isinstance(name, str) and name in BUILT_IN else _OTHER


class _BuiltInOnly:
    """Restricts the JSON Schema to the protocols of Headrace: editors have no schema of other options."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        generated: dict[str, Any] = handler(schema)
        return {"anyOf": [each for one in generated["oneOf"][:-1] for each in one.get("anyOf", [one])]}


if TYPE_CHECKING:
    AnyProtocol = ProtocolConfig
else:
    _FORMS = [Annotated[section, Tag(f"[{name}]")] for name, section in BUILT_IN.items()]
    AnyProtocol = Annotated[
        reduce(or_, [*_FORMS, Annotated[InstalledProtocol, Tag(_OTHER)]]), Discriminator(_tag), _BuiltInOnly()
    ]
    """Any protocol's section, or its name alone."""


def section_of(name: str) -> type[ProtocolConfig] | None:
    """The options of a protocol; None for an unknown protocol."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    entry_point = installed().get(name)
    if entry_point is None:
        return None
    try:
        section: type[ProtocolConfig] = load(entry_point).options
    except ValueError:
        return None
    return section


def serves(name: str) -> frozenset[Serves]:
    """The operations of a protocol's servers; none for an unknown protocol."""
    section = section_of(name)
    return frozenset() if section is None else section.serves
