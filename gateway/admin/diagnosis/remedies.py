"""The next steps for each cause of a refusal. Facts of the request are in braces."""

from collections.abc import Mapping

_KEYS = "list the keys of the tenant: `headrace keys list --tenant {tenant}`"
_FIND_CLIENT = "find the client by its address and its tenant, and give it another key"
_TRY = "try a server yourself: `curl -i {address}`"
_PROBE = "try its protocol as the gateway does: `headrace probe {address}`"
_MORE = "add endpoints to the pool, or raise `queue.max_in_flight` if its servers have room"
_WAITING = "look at who waits: `headrace top`"

STEPS: Mapping[str, tuple[str, ...]] = {
    "missing": ("tell the client to send `Authorization: Bearer KEY`",),
    "malformed": ("compare the credential of the client with a key, which begins with `hr-`",),
    "unknown": (
        "look for its id in `headrace keys list`: a key of another gateway, or made after a backup, is unknown here",
        "look for a restore or a change of `state.database`: `headrace audit list`",
    ),
    "wrong_secret": ("give the client the whole key again: a part of it was cut or changed", _KEYS),
    "another_pepper": (
        "give every gateway of the database the same pepper (`auth.pepper` or HEADRACE_PEPPER)",
        "if the pepper is lost, issue new keys: hashes cannot be converted",
    ),
    "revoked": (_FIND_CLIENT, "see who revoked it: `headrace audit list`"),
    "blocked": (
        "see who blocked it: `headrace audit list`",
        "if the client may go on: `headrace keys unblock {key}`",
    ),
    "expired": (_FIND_CLIENT, "issue a key that ends later: `headrace keys create --tenant TENANT --expires 90d`"),
    "rotated": (_FIND_CLIENT, "next time rotate with a longer overlap: `headrace keys rotate ID --overlap 30d`"),
    "tenant_removed": ("add the tenant to the file again, or revoke its keys",),
    "operation_out_of_scope": ("issue a key with this operation in its scopes, or change the client", _KEYS),
    "model_unknown": (
        "correct the name in the client, or add the model to the file",
        "list the models of a key: `curl -H 'Authorization: Bearer KEY' GATEWAY/v1/models`",
    ),
    "model_not_allowed": ("add the model to `tenants[].models` of the tenant, if it may use it",),
    "model_out_of_scope": ("issue a key with this model in its scopes, or change the client",),
    "no_route": ("see which conditions the request misses: `headrace explain --tenant {tenant} --model {model}`",),
    "limit": (
        "see what the tenant has used: `headrace usage list --tenant {tenant}`",
        "raise the limit in the file if the use is intended: it applies at once",
        "if one key or user is the cause, give it a limit of its own: `per: key` or `per: user`",
    ),
    "upstream_model": (
        "list the models of the server, and set `protocol.model` to the name that it has: `headrace probe {address}`",
    ),
    "version_unknown": ("list the versions of the model at its server",),
    "storage": ("delete stored files and responses, or raise `limits.storage`",),
    "no_healthy_endpoint": (_TRY, _PROBE, "look at the server's own log; route to another pool until it is back"),
    "model_not_ready": ("look at the state of the model at its server", "load it: `POST /v2/repository/models/M/load`"),
    "breaker_open": (_TRY, "look at the failures before: `headrace requests list --pool {pool} --error '*'`"),
    "pool_full": (_MORE, "give the pool a `queue`, so that short bursts wait"),
    "queue_full": (_WAITING, _MORE),
    "queue_late": (_WAITING, _MORE),
    "queue_timeout": (_WAITING, _MORE, "raise `queue.timeout` if clients can wait"),
    "queue_shed": (_WAITING, _MORE),
    "upstream_resting": ("see what the servers refuse: `headrace requests list --pool {pool} --error '*'`", _MORE),
    "upstream_quota": (
        "raise the quota at the provider, or add a second account or provider as another endpoint",
        "bound your own tenants below the quota: `limits`",
    ),
    "upstream_account": ("look at the provider's billing page: credit or quota is used up",),
    "upstream_overloaded": (_MORE, "route to another pool after a failure: `fallback`"),
    "starting": ("wait: the start is in `headrace top`",),
    "start_failed": ("look at the log of the runtime", "start it by hand with the same command"),
    "memory": ("raise `http.max_held` if the machine has the memory", "look for clients with very large bodies"),
    "limits_unavailable": ("look at Redis: `redis-cli ping`", "decide by `on_redis_failure` whether requests pass"),
    "storage_unavailable": ("look at the state database and the object storage",),
    "drained": ("raise `drain` above the time of the longest answers", "give the process as long before it is killed"),
}
