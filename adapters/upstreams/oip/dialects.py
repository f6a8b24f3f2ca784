"""What servers of the Open Inference Protocol do otherwise than Triton, which has most of it: one line a server."""

from typing import NamedTuple

from config.protocols.oip import OipServer


class Dialect(NamedTuple):
    """As one server has it."""

    binary: bool = True
    """Tensors in binary form over HTTP."""
    extras: bool = True
    """Prompts (`generate`), raw bodies and compressed ones over HTTP."""
    streams: bool = True
    """Streams of responses over HTTP, where the model has them."""
    needs_id: bool = False
    """It fails at a request without one."""
    versions: bool = True
    """Models have versions. One that is asked for where there are none is refused, since some servers take any."""
    name_first: bool = False
    """Over gRPC, the first field of an order is the model's name, and not its repository's; and what was done is told
    as an internal error."""
    typed: bool = False
    """Over gRPC its answers may hold typed contents, which not every client reads: they are made raw ones."""
    blunt: bool = False
    """It fails with 500 at tensors that are not its model's: they are held against its metadata then."""
    reloads: bool = False
    """It loads what its configuration file has, when it is told to read that again; nothing is unloaded."""
    graphs: bool = False
    """Over gRPC only its graphs stream: a model that is none is unknown to streams."""
    routed_by: str = ""
    """The header that says which model is asked, to the router before the servers."""


TRITON = Dialect()
_KSERVE = Dialect(extras=False, streams=False, needs_id=True, versions=False, name_first=True, typed=True, blunt=True)
_MLSERVER = Dialect(binary=False, extras=False, blunt=True)
_BY_NAME: dict[OipServer, Dialect] = {
    "triton": TRITON,
    "kserve": _KSERVE,
    "mlserver": _MLSERVER,
    "seldon": _MLSERVER._replace(routed_by="seldon-model"),
    "openvino": Dialect(extras=False, streams=False, reloads=True, graphs=True),
}
PIPELINE = ".pipeline"
"""What Seldon's router wants behind the name of a pipeline; the servers behind it do not."""


def dialect_of(server: OipServer | None) -> Dialect:
    """Triton's, where nobody says."""
    return _BY_NAME[server] if server is not None else TRITON
