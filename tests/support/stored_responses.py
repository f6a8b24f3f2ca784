"""Responses that are stored for a tenant."""

from gateway.features.stored.store import StoredResponse

NOW = 1_800_000_000.0


def response(
    tenant: str, id_: str, previous: str | None = None, at: float = NOW, answer: bytes = b"{}"
) -> StoredResponse:
    return StoredResponse(tenant, id_, at, at + 100, previous, b'["\\u0000\\ud800 x"]', answer)
