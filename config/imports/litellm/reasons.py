"""Why a setting of LiteLLM has no equivalent, or what replaces it."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from config.imports.survey import ForeignValue

_DATABASE = "has no equivalent: models, keys and teams are in this file or made with `headrace keys` and `teams`"
_CONTENT = "has no equivalent: use a pipeline with a step before or after the model"
_TOOLS = "has no equivalent"

REASONS: tuple[tuple[str, str], ...] = (
    ("model_list.*.model_info.id", "is not needed: a pool has a name"),
    ("model_list.*.model_info.db_model", _DATABASE),
    ("model_list.*.model_info.base_model", "is not needed: give the model a `price`"),
    ("model_list.*.model_info.mode", "is not needed: a pool serves every operation of its protocol"),
    (
        "model_list.*.model_info.access_groups",
        "has no equivalent: list the models of each tenant in `tenants[].models`",
    ),
    ("model_list.*.model_info.team_*", "has no equivalent: list the models of each tenant in `tenants[].models`"),
    ("model_list.*.model_info.supports_*", "is not needed: the shipped catalogue has the abilities of models"),
    ("model_list.*.model_info.max_*tokens", "is not needed: the shipped catalogue has the limits of models"),
    ("model_list.*.model_info.health_check_*", "has no equivalent: see `pools[].probe`"),
    (
        "model_list.*.litellm_params.tags",
        "has no equivalent: write a route with `when: {label: …}` or `when: {header: …}`",
    ),
    ("model_list.*.litellm_params.mock_*", "has no equivalent: no pool answers without a server"),
    ("model_list.*.litellm_params.guardrails", _CONTENT),
    (
        "model_list.*.litellm_params.max_budget",
        "has no equivalent: budgets are of tenants, teams, keys, models and users",
    ),
    ("model_list.*.litellm_params.budget_duration", "has no equivalent"),
    ("model_list.*.litellm_params.cache_control_injection_points", "has no equivalent"),
    ("model_list.*.litellm_params.use_in_pass_through", "has no equivalent: forward paths with `protocol: http`"),
    (
        "litellm_settings.*callback*",
        "has no equivalent: metrics, the access log, `traces` (OTLP) and `requests` record calls",
    ),
    ("litellm_settings.langfuse_*", "has no equivalent: Langfuse reads `traces`, with its OTLP endpoint as `to`"),
    ("litellm_settings.default_internal_user_params", _DATABASE),
    ("litellm_settings.*_key_generate_params", _DATABASE),
    ("litellm_settings.max_internal_user_budget", "has no equivalent: give the tenant `limits` with `per: user`"),
    ("litellm_settings.internal_user_budget_duration", "has no equivalent"),
    ("litellm_settings.guardrails", _CONTENT),
    ("litellm_settings.ssl_verify", "has no equivalent: certificates are always verified; see `pools[].tls.ca`"),
    ("litellm_settings.modify_params", "has no equivalent: bodies are translated, and otherwise unchanged"),
    ("router_settings.retry_policy", "has no equivalent: `retry` is for failures that another attempt may mend"),
    ("router_settings.model_group_retry_policy", "has no equivalent: see `models[].routes[].retry`"),
    ("router_settings.allowed_fails_policy", "has no equivalent: see `pools[].breaker`"),
    (
        "router_settings.enable_pre_call_checks",
        "has no equivalent: a fallback with `on: [context_length]` is tried instead",
    ),
    ("router_settings.routing_strategy_args", "has no equivalent"),
    (
        "router_settings.provider_budget_config",
        "has no equivalent: budgets are of tenants, teams, keys, models and users",
    ),
    ("router_settings.enable_tag_filtering", "has no equivalent: write routes with `when`"),
    ("router_settings.optional_pre_call_checks", "has no equivalent"),
    ("general_settings.database_url", "is LiteLLM's own database: Headrace has another one, see `state.database`"),
    ("general_settings.database_*", "has no equivalent: see `state.database`"),
    ("general_settings.store_model_in_db", _DATABASE),
    ("general_settings.store_prompts_in_spend_logs", "has no equivalent: see `record`"),
    (
        "general_settings.alert*",
        "has no equivalent: see `webhooks`, `tenants[].soft_budgets` and the alerts for Prometheus",
    ),
    ("general_settings.slack_*", "has no equivalent: see `webhooks`"),
    ("general_settings.custom_*", "has no equivalent: clients have keys, tokens (`auth.jwt`) or certificates"),
    ("general_settings.enable_jwt_auth", "needs a person: write the issuer in `auth.jwt`"),
    ("general_settings.litellm_jwtauth", "needs a person: write the issuer and its claims in `auth.jwt`"),
    ("general_settings.enable_oauth2_*", "has no equivalent: see `auth.jwt`"),
    ("general_settings.pass_through_endpoints", "has no equivalent: forward paths with a model of `protocol: http`"),
    ("general_settings.key_management_*", "has no equivalent: secrets are `${NAME}` or `file:PATH`"),
    ("general_settings.proxy_*", "has no equivalent"),
    ("general_settings.allowed_routes", "has no equivalent: see `scopes.fronts` of keys"),
    ("general_settings.public_routes", "has no equivalent: every path needs a credential, except health"),
    ("general_settings.ui_access_mode", "has no equivalent: see `console`"),
    ("general_settings.role_permissions", "has no equivalent: see the roles of keys"),
    ("environment_variables.*", "needs a person: set it in the environment of the gateway"),
    ("include.*", "is not read: import that file too, and join the results"),
    ("guardrails", _CONTENT),
    ("prompts", "has no equivalent"),
    ("policies", _CONTENT),
    ("mcp_*", _TOOLS),
    ("search_tools", _TOOLS),
    ("vector_store_*", _TOOLS),
    ("files_settings", "has no equivalent: see `batches`"),
    ("finetune_settings", "has no equivalent"),
    ("callback_settings", "has no equivalent: see `traces`"),
    ("assistant_settings", "has no equivalent"),
)
"""Pattern of a place, with `.` between its steps, and the reason."""


def explain(root: ForeignValue) -> None:
    """Give a reason to every part that has one here. It has no effect on parts that are used."""
    for part in _parts(root):
        path = ".".join(map(str, part.place))
        if (reason := next((text for pattern, text in REASONS if _matches(path, pattern)), None)) is not None:
            part.survey.reasons.setdefault(part.place, reason)


def _matches(path: str, pattern: str) -> bool:
    return path.count(".") == pattern.count(".") and fnmatchcase(path, pattern)


def _parts(part: ForeignValue) -> Iterator[ForeignValue]:
    for inner in part:
        yield inner
        if len(inner.place) < 5:
            yield from _parts(inner)
