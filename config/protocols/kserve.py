"""KServe's first protocol. Its second one is the Open Inference Protocol: `oip-http` and `oip-grpc`."""

from typing import Literal

from config.protocols.apps import DeclaredTensors
from config.protocols.base import Serves
from config.schema.text import Url


class KserveV1Protocol(DeclaredTensors):
    """``/v1/models/NAME:predict``."""

    name: Literal["kserve-v1"]
    """KServe's v1."""
    layout: Literal["object", "instances"] = "instances"
    """How the model has tensors in JSON. ``instances``: rows, ``{"instances": [...]}``, answered with ``predictions``.
    ``object``: ``{"NAME": [...]}``, both ways."""
    explainer: Url | None = None
    """Where ``:explain`` goes, if not to the endpoints: the model's explainer, which asks its predictor itself."""

    @property
    def offers(self) -> frozenset[Serves]:
        """Clients of its own protocol need no declared tensors."""
        return self.serves
