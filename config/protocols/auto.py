"""Detection of the endpoints' protocol."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class AutoProtocol(ProtocolConfig):
    """Detects the protocol of each endpoint at its first health check, and again after a failed one."""

    serves = frozenset({"text", "tensors", "app"})

    name: Literal["auto"]
    """Selects detection. An endpoint receives no requests until its protocol is detected."""
