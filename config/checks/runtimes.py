"""Runtimes that their device cannot hold, and settings of Ray and Ray Serve that conflict."""

from collections.abc import Iterator

from config.checks.pooling import protocol_of
from config.document import Document, Node
from config.problem import Problem
from config.schema.units import format_size


def check_devices(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every runtime whose device cannot hold it."""
    devices = {device["name"].text: device for device in root["devices"]}
    users: dict[str | None, list[Node]] = {name: [] for name in devices}
    for pool in root["pools"]:
        replicas = pool["runtime"]["replicas"]
        name = replicas["device"].text
        if name is None:
            continue
        if name not in devices:
            yield doc.problem(replicas["device"].place, f'there is no device "{name}": add it to `devices`')
            continue
        if "memory" not in replicas:
            yield doc.problem(replicas["device"].place, "needs `memory`, the size of the runtime")
        if replicas["min"].value != 0 or replicas["max"].value not in (None, 1):
            message = "needs `min: 0` and `max: 1`: a model on a shared device is loaded for its requests"
            yield doc.problem(replicas["device"].place, message)
        users[name].append(replicas)
    for name, device in devices.items():
        yield from _sizes(doc, device, users[name])


def check_adapters(doc: Document, root: Node) -> Iterator[Problem]:
    """Report adapters that have the name of their model."""
    for pool in root["pools"]:
        adapters = pool["runtime"]["adapters"]
        if pool["name"].text is not None and pool["name"].text in adapters:
            message = "has the pool's name, which is that of the model itself: choose another"
            yield doc.problem_with_key(adapters[pool["name"].text].place, message)


def _sizes(doc: Document, device: Node, users: list[Node]) -> Iterator[Problem]:
    if not users:
        yield doc.problem_with_key(device["name"].place, "has no effect: no runtime has it as `replicas.device`")
    memory = device["memory"].read(int)
    if memory is None:
        return
    pinned = sum(_size(user) for user in users if user["pinned"].value is True)
    for user in users:
        rest = memory - (0 if user["pinned"].value is True else pinned)
        if max(_size(user), pinned if user["pinned"].value is True else 0) > rest:
            beside = " beside its pinned models" if pinned else ""
            message = (
                f"exceeds the {format_size(max(rest, 0))} of {device['name'].text}{beside}: it could never be loaded"
            )
            yield doc.problem(user["memory"].place, message)


def _size(replicas: Node) -> int:
    return replicas["memory"].read(int) or 0


def advice(doc: Document, root: Node) -> Iterator[Problem]:
    """Warn of replicas that demand no key."""
    for pool in root["pools"]:
        runtime = pool["runtime"]
        if runtime["on"].text == "ray" and "key" not in runtime["ray"]:
            yield doc.problem(
                runtime["ray"].place, "has no `key`: everything that reaches the nodes can use the models"
            )


def check_deployments(doc: Document, root: Node) -> Iterator[Problem]:
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
