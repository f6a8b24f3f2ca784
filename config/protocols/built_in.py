"""The protocols of Headrace, by name."""

from typing import get_args

from config.protocols.anthropic import AnthropicProtocol
from config.protocols.apps import HttpProtocol
from config.protocols.auto import AutoProtocol
from config.protocols.base import ProtocolConfig
from config.protocols.bentoml import BentoMLProtocol
from config.protocols.bus import BusProtocol
from config.protocols.kserve import KserveV1Protocol
from config.protocols.oip import OipGrpcProtocol, OipHttpProtocol
from config.protocols.openai import OpenAIProtocol
from config.protocols.ray_serve import RayServeGrpcProtocol, RayServeProtocol
from config.protocols.tfserving import TfServingGrpcProtocol, TfServingProtocol
from config.protocols.tgi import TgiProtocol
from config.protocols.torchserve import TorchServeGrpcProtocol, TorchServeProtocol
from config.protocols.triton_generate import TritonGenerateProtocol

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
    BusProtocol,
)

BUILT_IN: dict[str, type[ProtocolConfig]] = {
    get_args(section.model_fields["name"].annotation)[0]: section for section in _SECTIONS
}
"""Name to section."""
