"""Dialects of the Open Inference Protocol: the differences of each server from Triton, one line each."""

from typing import NamedTuple

from config.schema.protocols.tensors import OipServer


class Dialect(NamedTuple):
    """The features of one kind of server."""

    binary: bool = True
    """Supports tensors in binary form over HTTP."""
    extras: bool = True
    """Supports prompts (`generate`), raw bodies and compressed bodies over HTTP."""
    streams: bool = True
    """Supports streams of responses over HTTP, for decoupled models."""
    needs_id: bool = False
    """Fails at a request without an id."""
    versions: bool = True
    """Has versions of models. The gateway rejects a version for other servers: some of them accept any version."""
    name_first: bool = False
    """Over gRPC, the first field of an order is the model's name instead of the repository's, and the success of an
    order is reported as an internal error."""
    typed: bool = False
    """Over gRPC, responses may hold typed contents, which not every client supports: they are converted to raw."""
    blunt: bool = False
    """Fails with 500 at tensors that do not fit the model; the gateway then checks them against the metadata."""
    reloads: bool = False
    """Loads the models of its configuration file when it is ordered to reload the file; it unloads no model."""
    graphs: bool = False
    """Over gRPC, only graphs stream; a stream to any other model fails with an unknown model."""
    routed_by: str = ""
    """The header with the model's name, for a router in front of the servers."""


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
"""The suffix of a pipeline's name that Seldon's router requires and the servers behind it do not accept."""


def dialect_of(server: OipServer | None) -> Dialect:
    """Return the dialect of a server; Triton's if none is configured."""
    return _BY_NAME[server] if server is not None else TRITON
