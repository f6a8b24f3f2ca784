"""Fields of Triton's `ModelConfig` message that the runtime does not serve.

A field is refused if answers would differ without it. A field without an effect causes a warning. The other fields
of each message are rows of `model_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from runtimes.tensor.configuration.model_config import (
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    SequenceState,
    TensorSpec,
)

_ENGINE = "is written for a TensorRT engine, which this runtime does not serve as a file"


class Unserved(NamedTuple):
    """The reason that a field is not supported."""

    reason: str
    is_refused: bool = False


def _refused(reason: str) -> Unserved:
    return Unserved(reason, is_refused=True)


_NO_EFFECT = Unserved("has no effect here")
UNSERVED: Final[Mapping[type, Mapping[str, Unserved]]] = {
    ModelConfig: {
        "model_operations": _refused("loads libraries into the process, which this runtime does not: leave it out"),
        "model_repository_agents": _refused(
            "are not run by this runtime: leave them out (SHA256SUMS beside the files is checked)"
        ),
        "optimization": Unserved("has no effect here: set the backend's own parameters"),
        "cc_model_filenames": Unserved("has no effect here: default_model_filename is loaded on any GPU"),
        "metric_tags": _NO_EFFECT,
        "model_metrics": Unserved("has no effect here: the buckets are fixed"),
        "runtime": Unserved("has no effect here: the backend chooses"),
    },
    TensorSpec: {"is_shape_tensor": _refused(_ENGINE), "is_non_linear_format_io": _refused(_ENGINE)},
    EnsembleStep: {"model_namespace": Unserved("has no effect here: models of one server have one namespace")},
    InstanceGroup: {
        "passive": _refused("computes nothing: leave the group out"),
        **dict.fromkeys(("rate_limiter", "secondary_devices", "profile", "host_policy"), _NO_EFFECT),
    },
    SequenceState: dict.fromkeys(("use_same_buffer_for_input_output", "use_growable_memory"), _NO_EFFECT),
}
