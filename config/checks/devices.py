"""Finds runtimes that cannot be loaded into the memory of their device, and devices without a runtime."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node
from config.problem import Problem
from config.schema.units import format_size


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every runtime whose device cannot hold it."""
    devices = {device["name"].text: device for device in root["devices"]}
    users: dict[str | None, list[Node]] = {name: [] for name in devices}
    for pool in root["pools"]:
        replicas = pool["runtime"]["replicas"]
        name = replicas["device"].text
        if name is None:
            for field in (field for field in ("memory", "pinned") if field in replicas):
                yield doc.problem_with_key(replicas[field].place, "has no effect without `device`")
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
