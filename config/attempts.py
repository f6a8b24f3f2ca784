"""Settings about further attempts that could never come to one."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node
from config.problem import Problem
from config.references import targets


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Hedges and resumes without anybody else to ask."""
    lone = {pool["name"].text for pool in root["pools"] if _is_alone(pool)}
    for pool in root["pools"]:
        if "resume" in pool and _is_alone(pool):
            message = "has no effect: another endpoint of the same pool carries on, and there is none"
            yield doc.problem_with_key(pool["resume"].place, message)
    for model in root["models"]:
        for route in model["routes"]:
            pools = [pool.text for pool in targets(route) if pool.text]
            if "hedge" in route and pools and lone.issuperset(pools):
                message = "has no effect: a hedge asks another endpoint of the same pool, and there is none"
                yield doc.problem_with_key(route["hedge"].place, message)


def _is_alone(pool: Node) -> bool:
    """Whether it surely has one endpoint: others may be discovered later."""
    return "runtime" in pool or ("discover" not in pool and len(list(pool["endpoints"])) == 1)
