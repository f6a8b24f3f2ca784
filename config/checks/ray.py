"""Finds runtimes in Ray clusters whose settings conflict, or are for the gateway's machine only."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node
from config.problem import Problem

_OF_THE_MACHINE = ("cpus", "gpus", "device")
_FETCHED = ("bundled:", "hf:", "/")


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report each conflict."""
    for pool in root["pools"]:
        runtime = pool["runtime"]
        if runtime["kind"].text not in ("llm", "tensor"):
            continue
        if runtime["on"].text == "ray":
            yield from _on_ray(doc, runtime)
        else:
            for field in (field for field in ("ray", "resources") if field in runtime):
                yield doc.problem_with_key(runtime[field].place, "has no effect without `on: ray`")


def advice(doc: Document, root: Node) -> Iterator[Problem]:
    """Warn of replicas that demand no key."""
    for pool in root["pools"]:
        runtime = pool["runtime"]
        if runtime["on"].text == "ray" and "key" not in runtime["ray"]:
            yield doc.problem(
                runtime["ray"].place, "has no `key`: everything that reaches the nodes can use the models"
            )


def _on_ray(doc: Document, runtime: Node) -> Iterator[Problem]:
    replicas = runtime["replicas"]
    for field in (field for field in _OF_THE_MACHINE if field in replicas):
        message = "is for the gateway's machine: with `on: ray`, write `resources`"
        if field == "device":
            message = "is for the gateway's machine: Ray places each replica on its own resources"
        yield doc.problem_with_key(replicas[field].place, message)
    field = "model" if runtime["kind"].text == "llm" else "repository"
    path = runtime[field].text
    if path is not None and not path.startswith(_FETCHED):
        message = "is relative to the working directory, which nodes do not have: write the path on the nodes"
        yield doc.problem(runtime[field].place, message)
