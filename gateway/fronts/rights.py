"""The rights of every route: who may call it, and whether it counts against the limits of the caller's tenant.

`client_right` and `admin_right` read the tables. A route of clients without a row does not start. A route of the admin
listener without a row is for operators, and a house test fails.
"""

from typing import Literal, NamedTuple

from adapters.wire import torchserve
from adapters.wire.openai.model_field import PASSTHROUGH, RANKING

Access = Literal["anyone", "scrapers", "tenant-admins", "operators"]
"""`scrapers`: everyone, unless `auth.admin.metrics` is set. `tenant-admins`: those of `{tenant}` in the path, and
operators; without a tenant in the path, the handler shows a tenant-admin its own tenant only."""
Counts = Literal["nothing", "state", "inference"]
"""`state`: the door counts the request and its bytes. `inference`: the core does, with the model's amounts."""


class ClientRight(NamedTuple):
    """A route for clients. Every credential of a tenant may call it whose scopes permit the operation."""

    methods: tuple[str, ...]
    operation: str
    counts: Counts = "nothing"


class AdminRight(NamedTuple):
    """A route of the admin listener, the console's included."""

    access: Access = "operators"
    changes_key: bool = False
    """Whether `{id}` is a key of `{tenant}` that the request changes: a tenant-admin changes no operator's key."""
    edits: bool = False
    """Whether it replaces the configuration file, for which `auth.admin.edit` is needed."""
    counts: Counts = "nothing"
    """`state`: the requests of tenant-admins count against the limits of their tenant."""


_GET, _POST = ("GET",), ("POST",)
_STATE_OF_CHAT: dict[str, tuple[str, ...]] = {
    "/v1/responses/{id}": ("GET", "DELETE"),
    "/v1/responses/{id}/input_items": _GET,
    "/v1/responses/{id}/cancel": _POST,
    "/v1/responses/{path}": ("GET", "POST", "DELETE"),
    "/v1/conversations": _POST,
    "/v1/conversations/{id}": ("GET", "POST", "DELETE"),
    "/v1/conversations/{id}/items": ("GET", "POST"),
    "/v1/conversations/{id}/items/{item}": ("GET", "DELETE"),
}
_STATE_OF_BATCHES: dict[str, tuple[str, ...]] = {
    "/v1/batches": ("GET", "POST"),
    "/v1/batches/{id}": _GET,
    "/v1/batches/{id}/cancel": _POST,
    "/v1/messages/batches": ("GET", "POST"),
    "/v1/messages/batches/{id}": ("GET", "DELETE"),
    "/v1/messages/batches/{id}/cancel": _POST,
    "/v1/messages/batches/{id}/results": _GET,
}
_CONTENT_VERBS = ("generateContent", "streamGenerateContent", "countTokens")
_EMBED_VERBS = ("embedContent", "batchEmbedContents", "predict")
_VERTEX = "/v1/projects/{project}/locations/{location}/publishers/anthropic/models"
_OF_CLOUDS = (
    f"{_VERTEX}/{{model}}:rawPredict",
    f"{_VERTEX}/{{model}}:streamRawPredict",
    f"{_VERTEX}/count-tokens:rawPredict",
    "/model/{model}/invoke",
    "/model/{model}/invoke-with-response-stream",
    "/model/{model}/converse",
    "/model/{model}/converse-stream",
    "/model/{model}/count-tokens",
)
CLIENT: dict[str, ClientRight] = {
    "/v1/chat/completions": ClientRight(_POST, "chat", "inference"),
    "/v1/completions": ClientRight(_POST, "text_completion", "inference"),
    "/v1/embeddings": ClientRight(_POST, "embeddings", "inference"),
    "/v1/responses": ClientRight(_POST, "chat", "inference"),
    "/v1/responses/input_tokens": ClientRight(_POST, "chat", "inference"),
    "/v1/messages": ClientRight(_POST, "chat", "inference"),
    "/v1/messages/count_tokens": ClientRight(_POST, "chat", "inference"),
    **{f"/v1beta/models/{{model}}:{verb}": ClientRight(_POST, "chat", "inference") for verb in _CONTENT_VERBS},
    **{f"/v1beta/models/{{model}}:{verb}": ClientRight(_POST, "embeddings", "inference") for verb in _EMBED_VERBS},
    "/v1beta/models": ClientRight(_GET, "models"),
    "/v1beta/models/{model}": ClientRight(_GET, "models"),
    **{path: ClientRight(_POST, "chat", "inference") for path in _OF_CLOUDS},
    "/v1/models": ClientRight(_GET, "models"),
    "/v1/models/{model}": ClientRight(_GET, "models"),
    "/v1/models/{model}/metadata": ClientRight(_GET, "models"),
    "/v1/models/{model}:explain": ClientRight(_POST, "explain", "inference"),
    "/v1/models/{model}:{verb}": ClientRight(_POST, "infer", "inference"),
    **{path: ClientRight(methods, "chat", "state") for path, methods in _STATE_OF_CHAT.items()},
    **{path: ClientRight(methods, "batches", "state") for path, methods in _STATE_OF_BATCHES.items()},
    "/v1/files": ClientRight(("GET", "POST"), "files", "state"),
    "/v1/files/{id}": ClientRight(("GET", "DELETE"), "files", "state"),
    "/v1/files/{id}/content": ClientRight(_GET, "files", "state"),
    "/v1/feedback": ClientRight(_POST, "feedback", "state"),
    "/v2": ClientRight(_GET, "models"),
    "/v2/models": ClientRight(_GET, "models"),
    "/v2/models/{model}": ClientRight(_GET, "models"),
    "/v2/models/{model}/explain": ClientRight(_POST, "explain", "inference"),
    "/v2/models/{model}/{kind}": ClientRight(_POST, "infer", "inference"),
    "/v2/models/stats": ClientRight(_GET, "models"),
    "/v2/repository/index": ClientRight(_POST, "models"),
    "/v2/repository/models/{model}/{order}": ClientRight(_POST, "models"),
    "/v2/{part}": ClientRight(("GET", "POST"), "models"),
    "/apps/{model}": ClientRight(("GET", "POST", "PUT", "PATCH", "DELETE"), "app", "inference"),
    **{
        path: ClientRight(_POST, row.kind if row.kind in RANKING else "app", "inference")
        for path, row in PASSTHROUGH.items()
    },
}

_OIP, _TF = "/inference.GRPCInferenceService/", "/tensorflow.serving."
_OIP_MODELS = (
    "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
    "RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
    "TraceSetting", "LogSettings",
)  # fmt: skip
GRPC_APPLICATION = "application"
"""The row of calls whose metadata names a model."""
GRPC: dict[str, str] = {
    **{f"{_OIP}{name}": "infer" for name in ("ModelInfer", "ModelStreamInfer")},
    **{f"{_OIP}{name}": "models" for name in _OIP_MODELS},
    **{f"{_TF}PredictionService/{name}": "infer" for name in ("Predict", "Classify", "Regress", "MultiInference")},
    f"{_TF}PredictionService/GetModelMetadata": "models",
    **{f"{_TF}ModelService/{name}": "models" for name in ("GetModelStatus", "HandleReloadConfigRequest")},
    **{path.decode(): "app" for path in (torchserve.PREDICTIONS, torchserve.STREAM_PREDICTIONS)},
    GRPC_APPLICATION: "app",
}
"""The operation of each method of the gRPC listener. Those with `infer` and `app` are counted by the core, none is
state; probes of health need no key."""

_OPEN, _ADMINS, _OPERATORS = AdminRight("anyone"), AdminRight("tenant-admins"), AdminRight()
_ORDERS = AdminRight("tenant-admins", counts="state")
_KEY_ORDERS = AdminRight("tenant-admins", changes_key=True, counts="state")
_EDITS = AdminRight(edits=True)
ADMIN: dict[str, AdminRight] = {
    "GET /livez": _OPEN,
    "GET /readyz": _OPEN,
    "GET /metrics": AdminRight("scrapers"),
    # the console's pages and sessions
    "GET /": _OPEN,
    "GET /console": _OPEN,
    "GET /console/": _OPEN,
    "GET /console/static/{path}": _OPEN,
    "GET /console/api/session": _OPEN,
    "POST /console/api/session": _OPEN,
    "DELETE /console/api/session": _OPEN,
    "DELETE /console/api/sessions": _OPEN,
    "GET /console/oidc/start": _OPEN,
    "GET /console/oidc/callback": _OPEN,
    "GET /console/api/quickstart": _ADMINS,
    "GET /console/api/live": _OPERATORS,
    "GET /console/api/live/history": _OPERATORS,
    # tenants, keys and teams
    "GET /admin/tenants": _ADMINS,
    "GET /admin/tenants/{tenant}": _ADMINS,
    "GET /admin/tenants/{tenant}/keys": _ADMINS,
    "POST /admin/tenants/{tenant}/keys": _ORDERS,
    "POST /admin/tenants/{tenant}/keys/{id}/rotate": _KEY_ORDERS,
    "DELETE /admin/tenants/{tenant}/keys/{id}": _KEY_ORDERS,
    "PUT /admin/tenants/{tenant}/keys/{id}/block": _KEY_ORDERS,
    "DELETE /admin/tenants/{tenant}/keys/{id}/block": _KEY_ORDERS,
    "PUT /admin/tenants/{tenant}/keys/{id}/team": _KEY_ORDERS,
    "GET /admin/tenants/{tenant}/teams": _ADMINS,
    "PUT /admin/tenants/{tenant}/teams/{team}": _ORDERS,
    "DELETE /admin/tenants/{tenant}/teams/{team}": _ORDERS,
    "GET /admin/tenants/{tenant}/invoices/{month}": _ADMINS,
    "GET /admin/tenants/{tenant}/alerts": _ADMINS,
    # what tenants have used and run
    "GET /admin/models": _ADMINS,
    "GET /admin/usage": _ADMINS,
    "GET /admin/usage/overview": _ADMINS,
    "GET /admin/requests": _ADMINS,
    "GET /admin/requests/{id}": _ADMINS,
    "POST /admin/requests/{id}/content": _ORDERS,
    "GET /admin/batches": _ADMINS,
    "GET /admin/batches/{id}": _ADMINS,
    "GET /admin/batches/{id}/failures": _ADMINS,
    "POST /admin/batches/{id}/cancel": _ORDERS,
    "GET /admin/playground/models": _ADMINS,
    "GET /admin/playground/metadata/{model}": _ADMINS,
    "GET /admin/playground/outcomes/{id}": _ADMINS,
    "POST /admin/playground/{kind}": _ADMINS,
    "POST /admin/playground/infer/{model}": _ADMINS,
    # operators
    "GET /admin/state": _OPERATORS,
    "GET /admin/why": _OPERATORS,
    "GET /admin/audit": _OPERATORS,
    "POST /admin/explain": _OPERATORS,
    "POST /admin/restart": _OPERATORS,
    "GET /admin/pipelines": _OPERATORS,
    "GET /admin/pools": _OPERATORS,
    "POST /admin/pools/{pool}/endpoints": _OPERATORS,
    "DELETE /admin/pools/{pool}/endpoints/{endpoint}": _OPERATORS,
    "PATCH /admin/pools/{pool}/endpoints/{endpoint}": _OPERATORS,
    "POST /admin/pools/{pool}/endpoints/{endpoint}/drain": _OPERATORS,
    "POST /admin/pools/{pool}/endpoints/{endpoint}/undrain": _OPERATORS,
    "POST /v2/repository/models/{model}/load": _OPERATORS,
    "POST /v2/repository/models/{model}/unload": _OPERATORS,
    "GET /admin/rollouts": _OPERATORS,
    "GET /admin/rollouts/{rollout}": _OPERATORS,
    "GET /admin/rollouts/{rollout}/series": _OPERATORS,
    "POST /admin/rollouts/{rollout}/{verb}": _OPERATORS,
    "GET /admin/experiments": _OPERATORS,
    "GET /admin/experiments/{experiment}": _OPERATORS,
    "GET /admin/experiments/{experiment}/series": _OPERATORS,
    "POST /admin/experiments/{experiment}/{verb}": _OPERATORS,
    "GET /admin/guards": _OPERATORS,
    "GET /admin/shadows": _OPERATORS,
    "GET /admin/shadows/{shadow}": _OPERATORS,
    "GET /admin/config": _OPERATORS,
    "GET /admin/config/schema": _OPERATORS,
    "PUT /admin/config": _EDITS,
    "POST /admin/config/check": _OPERATORS,
    "POST /admin/config/replay": _OPERATORS,
    "GET /admin/config/history": _OPERATORS,
    "GET /admin/config/history/{version}": _OPERATORS,
    "POST /admin/config/history/{version}/apply": _EDITS,
}


def client_right(path: str) -> ClientRight:
    """The right of a client's route. Raises `KeyError` for a route without a row."""
    return CLIENT[path]


def admin_right(method: str, path: str) -> AdminRight:
    """The right of a route of the admin listener."""
    return ADMIN.get(f"{'GET' if method == 'HEAD' else method} {path}", _OPERATORS)
