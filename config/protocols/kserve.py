"""KServe's first protocol. Its second one is the Open Inference Protocol: `oip-http` and `oip-grpc`."""

from typing import Literal

from config.protocols.apps import DeclaredTensors
from config.protocols.base import Serves
from config.schema.text import Url


class KserveV1Protocol(DeclaredTensors):
    """KServe's v1 protocol, ``/v1/models/NAME:predict``."""

    name: Literal["kserve-v1"]
    """Selects this protocol."""
    layout: Literal["object", "instances"] = "instances"
    """JSON form of tensors. ``instances``: rows, ``{"instances": [...]}``, answered with ``predictions``. ``object``:
    ``{"NAME": [...]}`` in both directions."""
    explainer: Url | None = None
    """URL of the model's explainer for ``:explain``, which calls its predictor itself. The endpoints when absent."""

    @property
    def offers(self) -> frozenset[Serves]:
        """Clients of its own protocol need no declared tensors."""
        return self.serves
