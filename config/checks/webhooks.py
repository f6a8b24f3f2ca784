"""Finds webhooks without use, references to unknown ones, and addresses to which nothing would be sent."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from config.addresses import may_be_public
from config.document import Document
from config.node import Node, names
from config.problem import Problem, closest


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every soft budget and webhook without an effect."""
    budgets = [soft for tenant in root["tenants"] for soft in tenant["soft_budgets"]]
    declared = names(root["webhooks"])
    for soft in budgets:
        name = soft["webhook"].text
        if name is not None and name not in declared:
            yield doc.problem(soft["webhook"].place, f'no webhook is named "{name}"', closest(name, declared))
        if "usage" not in root:
            yield doc.problem(soft.place, "has no effect without `usage`: write `usage: {}`")
    used = {soft["webhook"].text for soft in budgets}
    for webhook in root["webhooks"]:
        if webhook["name"].text is not None and webhook["name"].text not in used:
            yield doc.problem(webhook.place, "has no effect: no soft budget names it")
        yield from _address(doc, webhook)


def _address(doc: Document, webhook: Node) -> Iterator[Problem]:
    url = webhook["url"].read(str)
    if url is None or webhook["private"].read(bool):
        return
    if url.startswith("http:"):
        yield doc.problem(webhook["url"].place, "is not encrypted: write https, or `private: true`")
    elif not may_be_public(urlsplit(url).hostname or ""):
        yield doc.problem(webhook["url"].place, "is a private address: write `private: true` for one")
