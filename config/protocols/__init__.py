"""What a pool's endpoints speak: one section a protocol, with its options."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.protocols.anthropic import AnthropicProtocol
from config.protocols.apps import HttpProtocol
from config.protocols.auto import AutoProtocol
from config.protocols.base import ProtocolConfig, Serves
from config.protocols.bentoml import BentoMLProtocol
from config.protocols.installed import InstalledProtocol, installed, load
from config.protocols.kserve import KserveV1Protocol
from config.protocols.oip import OipGrpcProtocol, OipHttpProtocol
from config.protocols.openai import OpenAIProtocol
from config.protocols.ray_serve import RayServeGrpcProtocol, RayServeProtocol
from config.protocols.tfserving import TfServingGrpcProtocol, TfServingProtocol
from config.protocols.tgi import TgiProtocol
from config.protocols.torchserve import TorchServeGrpcProtocol, TorchServeProtocol
from config.protocols.triton_generate import TritonGenerateProtocol

__all__ = ["BUILT_IN", "AnyProtocol", "ProtocolConfig", "Serves", "section_of", "serves"]

_SECTIONS: tuple[type[ProtocolConfig], ...] = (
    OpenAIProtocol,
    AnthropicProtocol,
    OipHttpProtocol,
    OipGrpcProtocol,
    TfServingProtocol,
    TfServingGrpcProtocol,
    BentoMLProtocol,
    KserveV1Protocol,
    HttpProtocol,
    TorchServeProtocol,
    TorchServeGrpcProtocol,
    RayServeProtocol,
    RayServeGrpcProtocol,
    TgiProtocol,
    AutoProtocol,
    TritonGenerateProtocol,
)

BUILT_IN: dict[str, type[ProtocolConfig]] = {
    get_args(section.model_fields["name"].annotation)[0]: section for section in _SECTIONS
}
"""Those that come with Headrace, by name."""

_OTHER = "[installed]"


def _tag(value: object) -> str:
    name = value.get("name") if isinstance(value, dict) else value
    name = getattr(name, "name", name)
    return f"[{name}]" if isinstance(name, str) and name in BUILT_IN else _OTHER


class _BuiltInOnly:
    """Editors know those that come with Headrace: another's options are its own."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        told: dict[str, Any] = handler(schema)
        return {"anyOf": [each for one in told["oneOf"][:-1] for each in one.get("anyOf", [one])]}


if TYPE_CHECKING:
    AnyProtocol = ProtocolConfig
else:
    _FORMS = [Annotated[section, Tag(f"[{name}]")] for name, section in BUILT_IN.items()]
    AnyProtocol = Annotated[
        reduce(or_, [*_FORMS, Annotated[InstalledProtocol, Tag(_OTHER)]]), Discriminator(_tag), _BuiltInOnly()
    ]
    """One of them, or its name alone."""


def section_of(name: str) -> type[ProtocolConfig] | None:
    """The options of a protocol; None of one that is not known."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = installed().get(name)
    if found is None:
        return None
    try:
        section: type[ProtocolConfig] = load(found).options
    except ValueError:
        return None
    return section


def serves(name: str) -> frozenset[Serves]:
    """What servers of a protocol do; nothing, of one that is not known."""
    section = section_of(name)
    return frozenset() if section is None else section.serves
