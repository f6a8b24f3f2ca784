"""Finds credentials that contradict each other, admit no client, or admit every client."""

from collections.abc import Iterator
from typing import get_args

from config.document import Document, Node
from config.problem import Problem
from config.schema.identity import SECRET_BYTES, Algorithm
from config.schema.units import HostPort


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid combination of credentials."""
    yield from _admin(doc, root)
    yield from _console(doc, root)
    yield from _pepper(doc, root)
    yield from _client_certificates(doc, root)
    for issuer in root["auth"]["jwt"]:
        yield from _issuer(doc, issuer)


def _admin(doc: Document, root: Node) -> Iterator[Problem]:
    auth, listen = root["auth"]["admin"], root["listen"]["admin"]
    address, required = listen.read(HostPort), auth["required"].read(bool)
    if address is not None and not address.is_loopback and not required:
        message = "can be reached from elsewhere: set auth.admin.required, or listen on 127.0.0.1"
        yield doc.problem(listen.place, message)
    if root["listen"]["admin_tls"].read(bool) and "tls" not in root["listen"]:
        yield doc.problem_with_key(root["listen"]["admin_tls"].place, "has no effect without listen.tls")


def _console(doc: Document, root: Node) -> Iterator[Problem]:
    """Report a sign-in that has no effect, or whose redirect URI is unknown."""
    console, oidc = root["console"], root["console"]["oidc"]
    if not _written(doc, oidc):
        return
    if not root["auth"]["admin"]["required"].read(bool):
        yield doc.problem_with_key(oidc.place, "has no effect without auth.admin.required")
    address = root["listen"]["admin"].read(HostPort)
    if address is not None and not address.is_loopback and not _written(doc, console["url"]):
        yield doc.problem_with_key(oidc.place, "needs console.url: the provider sends browsers back to it")


def _pepper(doc: Document, root: Node) -> Iterator[Problem]:
    """Report a missing pepper: gateways with a shared database of keys need the same pepper."""
    database, pepper = root["state"]["database"], doc.value(root["auth"]["pepper"].place)
    if database.text and not database.text.startswith("sqlite") and pepper is None:
        yield doc.problem(database.place, "needs auth.pepper too: a pepper is generated and stored beside SQLite only")


def _client_certificates(doc: Document, root: Node) -> Iterator[Problem]:
    tls = root["listen"]["tls"]
    written = [tenant["certificates"] for tenant in root["tenants"] if list(tenant["certificates"])]
    if _written(doc, tls["client_ca"]):
        if not written and tls["client_auth"].read(str) != "required":
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
    elif _written(doc, issuer["tenant"]):
        for _, role in issuer["roles"].fields():
            if role.text == "operator":
                yield doc.problem(role.place, "an issuer of one tenant grants tenant-admin at most")


def _algorithms(doc: Document, issuer: Node, *, shared: bool) -> Iterator[Problem]:
    """Report a mix of shared secrets and public keys: a public key must not be accepted as a secret."""
    if shared and "refresh" in issuer:
        yield doc.problem_with_key(issuer["refresh"].place, "has no effect: a shared secret is not fetched")
    for algorithm in issuer["algorithms"]:
        if not shared and algorithm.text in SECRET_BYTES:
            message = "is signed with a secret, and the keys are public: remove it, or use allow_symmetric_secret"
            yield doc.problem(algorithm.place, message, "RS256")
        if shared and algorithm.text in get_args(Algorithm) and algorithm.text not in SECRET_BYTES:
            yield doc.problem(algorithm.place, "is signed with a key pair, and there is a shared secret", "HS256")


def _written(doc: Document, node: Node) -> bool:
    """Whether a field has a value in the file, even an unresolved reference."""
    return doc.value(node.place) is not None
