"""Why a request is refused: one cause out of a bounded list, and its facts. For operators; clients get the message."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MOST_TEXT = 128
"""Characters of a text among the facts."""
Fact = str | int | float

CREDENTIALS: Mapping[str, str] = {
    "missing": "The request has no credential.",
    "malformed": "The credential has neither the form of a key nor that of a token.",
    "unknown": "No key has this id. A key of another gateway or database looks like this too.",
    "wrong_secret": "The id is that of a key, but the secret is not, or the hash was made with another pepper.",
    "revoked": "The key was revoked.",
    "blocked": "The key is blocked: an administrator may unblock it.",
    "expired": "The key has expired.",
    "rotated": "The key was replaced by the key `rotated_to`, and its overlap has ended.",
    "tenant_removed": "The tenant of the credential is not in the configuration.",
    "token_malformed": "The token cannot be decoded, or is too long.",
    "token_issuer": "No issuer of `auth.jwt` issued the token.",
    "token_algorithm": "The issuer of the token does not use its algorithm.",
    "token_key": "The issuer publishes no key of the token's key id, or its keys could not be fetched.",
    "token_signature": "The signature of the token is wrong.",
    "token_expired": "The token has expired.",
    "token_early": "The token is not valid yet: compare the clocks.",
    "token_audience": "The token is for another audience.",
    "token_claims": "A claim of the token is missing or of a wrong type.",
    "certificate_unknown": "No tenant has a name of the client's certificate.",
    "certificate_ambiguous": "Several tenants have a name of the client's certificate.",
    "certificate_expired": "The client's certificate has expired since its handshake.",
    "session": "The session or its key has ended.",
}  # fmt: skip
"""Causes of 401."""
RIGHTS: Mapping[str, str] = {
    "operation_out_of_scope": "The scopes of the credential do not include the operation.",
    "operators_only": "Operators do this, on the admin listener or at the server itself.",
    "not_permitted": "The credential does not permit this.",
}
"""Causes of 403."""
MODELS: Mapping[str, str] = {
    "model_unknown": "The configuration has no model of this name.",
    "model_not_allowed": "The tenant may not use the model.",
    "model_out_of_scope": "The scopes of the credential do not include the model.",
    "no_route": "No route of the model matches the request.",
    "route_out_of_scope": "The scopes of the credential do not include the route.",
    "version_unknown": "The model has no such version.",
    "upstream_model": "The endpoint has no model of this name.",
    "path_unknown": "The gateway has no such path.",
    "disabled": "The feature is not configured.",
    "item_unknown": "There is no item of this id, or it belongs to another tenant.",
}
"""Causes of 404."""
LIMITS: Mapping[str, str] = {
    "limit": "A limit of the configuration is exhausted: `unit`, `limit`, `per` and `subject` name it.",
    "fair_share": "The tenant uses its share of a bound that protects the gateway.",
    "storage": "The tenant stores as much as it may.",
}
"""Causes of 429."""
CAPACITY: Mapping[str, str] = {
    "no_healthy_endpoint": "Every endpoint of the pool is unhealthy.",
    "model_not_ready": "The healthy endpoints have not loaded the model.",
    "none_permitted": "The proxy in front permits no endpoint that may be selected.",
    "sequence_lost": "The endpoint that held the sequence is gone.",
    "breaker_open": "The breakers of the endpoints that have a free place are open.",
    "pool_full": "Every endpoint of the pool is full, and the pool has no queue.",
    "queue_full": "Every endpoint and the queue of the pool are full.",
    "queue_late": "The wait in the queue would be too long.",
    "queue_timeout": "No place became free within the timeout of the queue.",
    "queue_shed": "A request of a higher priority or of a smaller share needed the place in the queue.",
    "queue_removed": "A reload removed the queue.",
    "upstream_resting": "The endpoints require a pause after they refused requests.",
    "upstream_quota": "The provider refuses more requests of the pool's account: its own 429.",
    "upstream_account": "The provider's account of the pool's key has no credit or quota left.",
    "upstream_overloaded": "The upstream reports that it is overloaded.",
    "upstream_lost": "A runtime lost the copy of the model that computed the request.",
    "upstream_credentials": "The gateway has no valid credential for the servers of the pool.",
    "upstream_connections": "Every connection to the endpoint is in use.",
    "detecting": "The protocol of the endpoint is not detected yet.",
    "no_workers": "No worker reads the topic of the requests, or too many requests wait for them.",
    "starting": "The model is starting.",
    "start_failed": "The model does not start.",
    "memory": "Requests and answers hold as many bytes as `http.max_held` permits.",
    "decoding": "Too many large bodies wait to be decoded.",
    "limits_unavailable": "The limits cannot be counted: Redis or the table of the host does not answer.",
    "storage_unavailable": "The database or the object storage does not answer.",
    "slow_reader": "The client read a shared response too slowly.",
    "drained": "The gateway ended its drain before the answer was complete.",
    "no_process": "No process of the gateway serves at the moment.",
    "capacity": "The gateway cannot take the request now.",
}
"""Causes of 503."""
CAUSES: Mapping[str, str] = {**CREDENTIALS, **RIGHTS, **MODELS, **LIMITS, **CAPACITY}
"""Every cause, with its description."""

BY_CODE: Mapping[str, str] = {
    "missing_api_key": "missing",
    "unknown_url": "path_unknown",
    "unknown_path": "path_unknown",
    "feedback_unknown": "item_unknown",
    "batch_not_found": "item_unknown",
    "file_not_found": "item_unknown",
    "response_not_found": "item_unknown",
    "item_not_found": "item_unknown",
    "conversation_not_found": "item_unknown",
    "thread_not_found": "item_unknown",
    "not_found": "item_unknown",
    "batches_disabled": "disabled",
    "files_disabled": "disabled",
    "response_not_stored": "item_unknown",
    "limits_unavailable": "limits_unavailable",
    "storage_unavailable": "storage_unavailable",
    "feedback_unavailable": "storage_unavailable",
    "stored_responses_unavailable": "storage_unavailable",
    "slow_reader": "slow_reader",
    "no_worker": "no_process",
    "sequence_lost": "sequence_lost",
}  # fmt: skip
"""The causes of codes that have one cause alone."""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why a request is refused. It has no secret: texts of clients are cut, and have printable characters only."""

    cause: str
    facts: Mapping[str, Fact] = {}

    def describe(self) -> dict[str, Fact]:
        """As JSON."""
        return {"cause": self.cause, **self.facts}


def reason(cause: str, **facts: Fact | None) -> Reason:
    """A reason with those facts that are not None or empty."""
    assert cause in CAUSES, cause
    return Reason(cause, {name: _bounded(value) for name, value in facts.items() if value not in (None, "")})


def _bounded(value: Fact | None) -> Fact:
    if not isinstance(value, str):
        return 0 if value is None else value
    text = value[:MOST_TEXT]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
