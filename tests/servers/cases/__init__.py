"""The requests for a real Triton and for our runtime: by name, one request or several in order."""

from collections.abc import Mapping, Sequence

from tests.servers.calls import Call
from tests.servers.cases.bad_input import BAD_INPUT
from tests.servers.cases.control import CONTROL
from tests.servers.cases.framing import FRAMING
from tests.servers.cases.inference import INFERENCE
from tests.servers.cases.metadata import METADATA
from tests.servers.cases.rpcs import RPCS
from tests.servers.cases.sequences import SEQUENCES
from tests.servers.cases.streams import STREAMS
from tests.servers.exchange import HttpRequest

GROUPS: Mapping[str, Mapping[str, Sequence[HttpRequest | Call]]] = {
    "metadata": METADATA,
    "inference": INFERENCE,
    "bad input": BAD_INPUT,
    "framing": FRAMING,
    "streams": STREAMS,
    "sequences": SEQUENCES,
    "control": CONTROL,
    "gRPC": RPCS,
}
CASES = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}
