"""Messages and calls of KEDA's external scaler.

The `.proto` file is an excerpt of the published one (Apache 2.0, see its head); `keda.binpb` is made from it by `make
protos`.
"""

from pathlib import Path
from typing import Any

from adapters.wire.protos import load, messages, methods

_FILES = load(Path(__file__).parent / "keda.binpb")

externalscaler: Any = messages(_FILES["externalscaler.proto"])
"""`externalscaler.ScaledObjectRef` and the others."""
SCALER = methods(_FILES["externalscaler.proto"].services_by_name["ExternalScaler"])
"""The methods of `externalscaler.ExternalScaler`, by name."""
