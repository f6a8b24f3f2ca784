"""Sections for the whole gateway: LiteLLM's general, router and module settings, teams and budgets."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from config.imports.draft import Blueprint, as_name, free
from config.imports.hosting import Secrets
from config.imports.litellm.deployments import seconds
from config.imports.survey import ForeignValue, duration
from config.schema.config import BreakerConfig, CacheConfig, ProbeConfig, StateConfig, TenantConfig

_PERIODS: Final = {
    **dict.fromkeys(("1h", "60m", "hourly"), "hour"),
    **dict.fromkeys(("1d", "24h", "daily"), "day"),
    **dict.fromkeys(("1mo", "30d", "31d", "monthly"), "month"),
}
_BY_DEFAULT: Final = (
    ("litellm_settings", "turn_off_message_logging", True, "no text of a request is recorded unless you configure it"),
    ("litellm_settings", "redact_user_api_key_info", True, "no key is in any log"),
    ("litellm_settings", "redact_messages_in_exceptions", True, "no text of a request is in any log"),
    ("general_settings", "background_health_checks", True, "pools of own servers are probed"),
    ("general_settings", "disable_spend_logs", False, ""),
    ("litellm_settings", "set_verbose", False, ""),
    ("litellm_settings", "json_logs", False, ""),
    ("router_settings", "set_verbose", False, ""),
    ("router_settings", "disable_cooldowns", False, ""),
    ("router_settings", "enable_pre_call_checks", False, ""),
)
"""Values that are the behaviour here anyway."""


class GatewaySettings:
    """Reads the sections after the models are in the draft."""

    def __init__(self, root: ForeignValue, draft: Blueprint, secrets: Secrets) -> None:
        self._root, self._draft, self._secrets = root, draft, secrets
        self._general, self._module, self._router = (
            root[name] for name in ("general_settings", "litellm_settings", "router_settings")
        )
        self._redis: str | None = None

    def cache(self) -> dict[str, Any] | None:
        """The cache of routes; None without one."""
        part, params = self._module["cache"], self._module["cache_params"]
        kind = params["type"]
        if part.flag() is not True or kind.value not in (None, "local", "redis", "redis-cluster"):
            for each in (part, params):
                each.leave("has no equivalent: a route caches answers to identical requests")
            return None
        if kind.text() not in (None, "local"):
            params.leave("is another cache: here each worker has its own in memory, see `models[].routes[].cache`")
        ttl = params["ttl"].number()
        made: dict[str, Any] = {"only": "all", **({"ttl": duration(ttl)} if ttl is not None and ttl >= 0 else {})}
        if self._draft.error(CacheConfig, made) is not None:
            params["ttl"].leave("is no time that is possible here")
            return {"only": "all"}
        return made

    def write(self) -> None:
        """Add the sections, and the fields of all pools."""
        for section, name, value, _ in _BY_DEFAULT:
            part = self._root[section][name]
            if (flag := part.flag()) is not None and flag is not value:
                self._root.survey.used.discard(part.place)
        self._logs()
        self._protections()
        self._shared_state()
        self._keys()
        self._bodies()
        self._callbacks()
        if (model := self._general["completion_model"].text()) is not None:
            if model in self._draft.models:
                self._draft.sections["default_models"] = {"chat": model}
            else:
                self._general["completion_model"].leave("is not imported: no model of the result has this name")
        self._tenants()

    def _logs(self) -> None:
        log: dict[str, str] = {}
        if self._module["json_logs"].flag():
            log["format"] = "json"
        verbose = [section["set_verbose"].flag() for section in (self._module, self._router)]
        if any(verbose):
            log["level"] = "debug"
        if log:
            self._draft.sections["log"] = log

    def _callbacks(self) -> None:
        """Prometheus reads every gateway. Traces need an address."""
        for name in ("callbacks", "success_callback", "failure_callback", "service_callback"):
            listed = self._module[name]
            for part in (listed,) if isinstance(listed.value, str) else tuple(listed):
                if part.value == "prometheus":
                    part.use()
                elif part.value in ("otel", "langfuse_otel", "langfuse", "arize", "arize_phoenix", "traceloop"):
                    part.leave("needs a person: write the address of its OTLP endpoint in `traces.to`")

    def _protections(self) -> None:
        """The breaker of pools with several endpoints, and the interval of probes."""
        breaker: dict[str, Any] = {}
        parts = [
            section[name] for section in (self._router, self._module) for name in ("allowed_fails", "cooldown_time")
        ]
        for part in parts:
            value = part.number()
            if value is not None and part.name == "allowed_fails" and value >= 0:
                breaker.setdefault("failures", int(value) + 1)
            elif value is not None and value > 0:
                breaker.setdefault("open_for", duration(value))
        several = [pool for pool in self._draft.pools.values() if len(pool.get("endpoints", ())) > 1]
        if breaker and several and self._draft.error(BreakerConfig, breaker) is None:
            for pool in several:
                pool["breaker"] = dict(breaker)
        elif breaker:
            for part in parts:
                part.leave("has no effect: no pool has several endpoints, and the last one is never ejected")
        interval = seconds(self._general["health_check_interval"])
        probed = [pool for pool in self._draft.pools.values() if "probe" not in pool]
        if interval is None:
            return
        probe = {"interval": duration(interval)}
        if not probed or self._draft.error(ProbeConfig, probe) is not None:
            self._general["health_check_interval"].leave(
                "has no effect: hosted APIs are not probed, see `pools[].probe`"
            )
            return
        for pool in probed:
            pool["probe"] = dict(probe)

    def _shared_state(self) -> None:
        """Redis counts the limits that several gateways share."""
        router = self._router
        url = self._secrets.url(router["redis_url"], "REDIS_URL", "redis://localhost:6379/0")
        if not url and router["redis_host"]:
            host = self._secrets.text(router["redis_host"], "localhost")
            port = self._secrets.text(router["redis_port"], "6379") or str(router["redis_port"].whole(1, 65535) or 6379)
            password = self._secrets.reference(router["redis_password"], "REDIS_PASSWORD")
            url = f"redis://{f':{password}@' if password else ''}{host}:{port}"
        if not url:
            return
        if self._draft.error(StateConfig, {"redis": url}) is not None:
            router["redis_url"].leave("is no Redis URL here")
            return
        self._redis = url

    def _keys(self) -> None:
        """Keys are issued: none is in the file."""
        if self._general["master_key"]:
            self._general["master_key"].use()
            self._draft.task(
                "LiteLLM's master key has no successor. Issue a key for clients with `headrace keys create --tenant"
                " default` and one for operators with `--role operator`."
            )

    def _bodies(self) -> None:
        size = self._general["max_request_size_mb"].number()
        if size is not None and 1 <= size <= 1024 and size == int(size):
            self._draft.sections["http"] = {"max_body": f"{int(size)}MiB"}
        elif size is not None:
            self._general["max_request_size_mb"].leave("is not a size that is possible here: see `http.max_body`")
        answer = self._general["max_response_size_mb"].number()
        if answer is not None and 1 <= answer <= 1024 and answer == int(answer):
            for pool in self._draft.pools.values():
                pool["max_answer"] = f"{int(answer)}MiB"
        elif answer is not None:
            self._general["max_response_size_mb"].leave("is not a size that is possible here: see `pools[].max_answer`")

    # ── tenants ───────────────────────────────────────────────────────────────────────────────────────

    def _tenants(self) -> None:
        tenant: dict[str, Any] = {"name": "default", "models": ["*"]}
        limits: dict[str, Any] = {}
        concurrency = [
            value
            for name in ("global_max_parallel_requests", "max_parallel_requests")
            for section in (self._general, self._module)
            if (value := section[name].whole(1)) is not None
        ]
        if concurrency:
            limits["concurrency"] = max(concurrency)
        limits |= self._budget(self._module, "max_budget", "budget_duration")
        teams = [team for part in self._root["teams"] if (team := self._team(part)) is not None]
        names: list[str] = []
        for team in teams:
            team["name"] = free(team["name"], names)
            names.append(team["name"])
        for part in (*self._root["keys"], *self._root["virtual_keys"]):
            part.leave("is a key: issue a new one with `headrace keys create`, with the same team and models")
        self._redis_limits(limits, teams)
        if limits:
            tenant["limits"] = limits
        if teams:
            tenant["teams"] = teams
        if (error := self._draft.error(TenantConfig, tenant)) is not None:
            self._draft.note("tenants", "default", f"Its limits and teams are not imported: {error}.")
            tenant = {"name": "default", "models": ["*"]}
        if "limits" in tenant or teams:
            self._draft.sections["usage"] = {}
        self._draft.tenants["default"] = tenant

    def _redis_limits(self, limits: dict[str, Any], teams: list[dict[str, Any]]) -> None:
        """Redis has an effect only with limits that are counted in it."""
        if self._redis is None:
            return
        counted = [each for each in (limits, *(team.get("limits", {}) for team in teams)) if each]
        for each in counted:
            each["count"] = "leased"
        if counted:
            self._draft.sections["state"] = {"redis": self._redis}
            return
        for part in self._router:
            if part.name.startswith("redis_"):
                part.leave(
                    "has no effect: Redis is for limits that several gateways count together, and there are none"
                )

    def _team(self, part: ForeignValue) -> dict[str, Any] | None:
        name = part["team_alias"].text() or part["team_id"].text()
        if name is None:
            part.leave("is a team without a name")
            return None
        if part["team_alias"]:
            part["team_id"].leave("is not needed: a team has a name")
        made: dict[str, Any] = {"name": as_name(name)}
        limits: dict[str, Any] = self._budget(part, "max_budget", "budget_duration")
        for theirs, ours in (("rpm_limit", "requests"), ("tpm_limit", "tokens")):
            if (amount := part[theirs].whole(1)) is not None:
                limits[ours] = f"{amount}/min"
        if (parallel := part["max_parallel_requests"].whole(1)) is not None:
            limits["concurrency"] = parallel
        part["models"].leave("has no equivalent: give the team's keys `scopes.models`")
        return {**made, **({"limits": limits} if limits else {})}

    def _budget(self, section: ForeignValue, amount_name: str, period_name: str) -> dict[str, Any]:
        amount, period = section[amount_name], section[period_name]
        value = amount.number()
        if value is None:
            return {}
        every = _PERIODS.get(str(period.value), "")
        unpriced = list(self._unpriced())
        if value <= 0 or not every:
            reason = "is no budget here: budgets are of an hour, a day or a month of the calendar"
        elif unpriced:
            reason = f"is not imported: a budget needs a price of every model, also of {', '.join(unpriced[:3])}"
        else:
            period.use()
            return {"spend": f"{_plain(value)} usd/{every}"}
        amount.leave(reason)
        period.leave(reason)
        return {}

    def _unpriced(self) -> Iterator[str]:
        return (name for name, model in self._draft.models.items() if "price" not in model)


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
