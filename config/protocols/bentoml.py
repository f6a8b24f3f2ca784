"""BentoML's services."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class BentoMLProtocol(ProtocolConfig):
    """``POST /METHOD``: a model's name is a method's, or its route; ``/schema.json`` tells what it takes."""

    serves = frozenset({"tensors", "app"})

    name: Literal["bentoml"]
    """BentoML's HTTP services."""
