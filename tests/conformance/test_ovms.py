"""OpenVINO Model Server, over both of its wires: a stand-in built from its documents, over a real OpenVINO."""

from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import adding, over_both_wires, wire_of
from tests.servers.ovms import VERSION, ovms
from tests.servers.shared import shared
from tests.servers.started import Started

ORDERS = {"load and unload": "Its configuration file lists the models: the gateway reloads it, and cannot unload."}


def subject(server: Started, wire: str) -> Subject:
    over_http = wire == "oip-http"
    return adding(
        system=f"OpenVINO Model Server, {wire_of(wire)}",
        version=VERSION,
        how="conformance server",
        pool=pool({"name": wire, "server": "openvino"}, server.url(0 if over_http else 1)),
        signals=server.url() + "/metrics",
        signals_server="openvino",
        lacks={"stream": "Only its graphs stream, over gRPC."} | ({} if over_http else ORDERS),
        unseen=ORDERS if over_http else {},
    )


@every_feature
@over_both_wires
async def test_conforms(wire: str, feature: str) -> None:
    await conforms(subject(shared(ovms), wire), feature)
