"""Fields that are right each by itself and not together: unsafe, or without any effect.

Whoever writes a field believes that it does something, so one that does nothing is refused.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

from config import attempts, backlog, metering, pooling, routing
from config.document import Document
from config.identity import SECRET_BYTES, Algorithm
from config.node import Node
from config.problem import Problem
from config.schema import ListenConfig, TimeoutConfig
from config.units import HostPort, format_duration, parse_duration, parse_host_port


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Every combination that cannot stand."""
    yield from _listeners(doc, root)
    yield from _pepper(doc, root)
    yield from _client_certificates(doc, root)
    for issuer in root["auth"]["jwt"]:
        yield from _issuer(doc, issuer)
    yield from pooling.check(doc, root)
    yield from metering.check(doc, root)
    yield from attempts.check(doc, root)
    yield from backlog.check(doc, root)
    yield from routing.check(doc, root)
    for model in root["models"]:
        for route in model["routes"]:
            yield from _retry(doc, route["retry"])
            yield from _timeout(doc, route["timeout"])


def _listeners(doc: Document, root: Node) -> Iterator[Problem]:
    listen = root["listen"]
    http = _address(listen["http"], ListenConfig().http)
    admin = _address(listen["admin"], ListenConfig().admin)
    if http and admin and http.overlaps(admin):
        yield doc.problem(listen["admin"].place, f"takes the port of listen.http ({http}): give it another")
    exposed = [str(address) for address in (http, admin) if address and not address.is_loopback]
    if root["auth"]["demo_key"].value is True and exposed:
        message = f"a demo key is for loopback only, and {' and '.join(exposed)} can be reached from elsewhere"
        yield doc.problem(root["auth"]["demo_key"].place, message)


def _address(node: Node, default: HostPort) -> HostPort | None:
    if node.value is None:
        return default
    with suppress(ValueError):
        return parse_host_port(node.value)
    return None


def _pepper(doc: Document, root: Node) -> Iterator[Problem]:
    """Keys in a database that several gateways share are worth nothing to them without the same pepper."""
    database, pepper = root["state"]["database"], doc.value(root["auth"]["pepper"].place)
    if database.text and not database.text.startswith("sqlite") and pepper is None:
        yield doc.problem(database.place, "needs auth.pepper too: only beside SQLite is one made and kept")


def _client_certificates(doc: Document, root: Node) -> Iterator[Problem]:
    tls = root["listen"]["tls"]
    written = [tenant["certificates"] for tenant in root["tenants"] if list(tenant["certificates"])]
    if _written(doc, tls["client_ca"]):
        if not written and tls["client_auth"].value != "required":
            message = "has no effect: no tenant has `certificates`, and client_auth is not required"
            yield doc.problem_with_key(tls["client_ca"].place, message)
        return
    if "client_auth" in tls:
        yield doc.problem_with_key(tls["client_auth"].place, "has no effect without client_ca")
    for certificates in written:
        yield doc.problem_with_key(certificates.place, "has no effect without listen.tls.client_ca")


def _issuer(doc: Document, issuer: Node) -> Iterator[Problem]:
    shared = _written(doc, issuer["allow_symmetric_secret"])
    if shared == _written(doc, issuer["jwks"]):
        yield doc.problem(issuer.place, "has one source of keys: give jwks, or allow_symmetric_secret with HS256")
    else:
        yield from _algorithms(doc, issuer, shared=shared)
    if _written(doc, issuer["tenant"]) == _written(doc, issuer["claims"]["tenant"]):
        yield doc.problem(issuer.place, "has one source of the tenant: give tenant, or claims.tenant")
    if issuer["roles"].value and "roles" not in issuer["claims"]:
        yield doc.problem_with_key(issuer["roles"].place, "has no effect without claims.roles")


def _algorithms(doc: Document, issuer: Node, *, shared: bool) -> Iterator[Problem]:
    """A shared secret and public keys are never mixed: a public key must not pass for a secret."""
    if shared and "refresh" in issuer:
        yield doc.problem_with_key(issuer["refresh"].place, "has no effect: a shared secret is not fetched")
    for algorithm in issuer["algorithms"]:
        if not shared and algorithm.text in SECRET_BYTES:
            message = "is signed with a secret, and the keys are public: remove it, or use allow_symmetric_secret"
            yield doc.problem(algorithm.place, message, "RS256")
        if shared and algorithm.text in get_args(Algorithm) and algorithm.text not in SECRET_BYTES:
            yield doc.problem(algorithm.place, "is signed with a key pair, and there is a shared secret", "HS256")


def _written(doc: Document, node: Node) -> bool:
    """Whether it has a value in the file, even one that leads nowhere."""
    return doc.value(node.place) is not None


def _retry(doc: Document, retry: Node) -> Iterator[Problem]:
    if retry["attempts"].value == 1:
        for name in ("budget", "backoff"):
            if name in retry:
                yield doc.problem_with_key(retry[name].place, "has no effect: attempts is 1, so nothing is retried")


def _timeout(doc: Document, timeout: Node) -> Iterator[Problem]:
    total = _seconds(timeout["total"]) or TimeoutConfig().total
    for name in ("first_byte", "idle"):
        if (_seconds(timeout[name]) or 0) > total:
            message = f"has no effect: the total of {format_duration(total)} ends the request before"
            yield doc.problem(timeout[name].place, message)


def _seconds(node: Node) -> float | None:
    with suppress(ValueError):
        return parse_duration(node.value)
    return None
