"""Finds deployments of Ray Serve whose number of replicas the gateway cannot set."""

from collections.abc import Iterator

from config.checks.pooling import protocol_of
from config.document import Document
from config.node import Node
from config.problem import Problem


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report each conflict."""
    for pool in root["pools"]:
        if "runtime" not in pool and "deployment" in pool["scale"]:
            yield from _deployment(doc, pool)


def _deployment(doc: Document, pool: Node) -> Iterator[Problem]:
    scale, place = pool["scale"], pool["scale"]["deployment"].place
    protocol = pool["protocol"]
    if protocol_of(pool) != "ray-serve" or "dashboard_port" not in protocol or "application" not in protocol:
        message = (
            "needs the Serve REST API: write `protocol: {name: ray-serve, application: ..., dashboard_port: 8265}`"
        )
        yield doc.problem_with_key(place, message)
    if "sleep" in scale:
        yield doc.problem_with_key(scale["sleep"].place, "is for servers of vLLM: remove `sleep`, or `deployment`")
    if "discover" in pool or len(list(pool["endpoints"])) != 1:
        yield doc.problem_with_key(place, "is for one endpoint: its replicas are behind one proxy")
    if scale["min"].value == 0:
        yield doc.problem(scale["min"].place, "is 0, but a deployment of Ray Serve needs a replica: write 1 or more")
