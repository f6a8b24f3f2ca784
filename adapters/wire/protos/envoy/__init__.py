"""The messages of Envoy's external processing, as far as an endpoint picker uses them.

`ext_proc.proto` has the numbers and names of Envoy's own files; `make protos` generates `ext_proc.binpb`.
"""

from pathlib import Path
from typing import Any

from adapters.wire.protos import load, messages, methods

_FILE = load(Path(__file__).parent / "ext_proc.binpb")["ext_proc.proto"]

ext_proc: Any = messages(_FILE)
"""`ext_proc.ProcessingRequest` and the others."""
PROCESS = methods(_FILE.services_by_name["ExternalProcessor"])["Process"]
"""The only method of `envoy.service.ext_proc.v3.ExternalProcessor`."""
FULL_DUPLEX, BUFFERED = (
    _FILE.enum_types_by_name["BodySendMode"].values_by_name[name].number
    for name in ("FULL_DUPLEX_STREAMED", "BUFFERED")
)
"""The modes in which Envoy sends bodies: in pieces that the picker replaces, or whole."""
