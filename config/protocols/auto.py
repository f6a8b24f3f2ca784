"""What endpoints speak, found out from them."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class AutoProtocol(ProtocolConfig):
    """Each endpoint is looked at when its health is first checked, and again after it was ill."""

    serves = frozenset({"text", "tensors", "app"})

    name: Literal["auto"]
    """Whatever the endpoint turns out to speak. Until that is known it is not picked."""
