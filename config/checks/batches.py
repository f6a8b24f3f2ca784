"""Finds settings of batches without effect."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node
from config.problem import Problem

_NO_SECTION = "has no effect: the file has no section `batches`"


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report settings of batches in a file that runs none."""
    if "batches" in root:
        return
    for pool in root["pools"]:
        if "provider_batches" in pool:
            yield doc.problem_with_key(pool["provider_batches"].place, _NO_SECTION)
    for tenant in root["tenants"]:
        if "batches" in tenant:
            yield doc.problem_with_key(tenant["batches"].place, _NO_SECTION)
