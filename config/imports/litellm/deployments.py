"""An entry of LiteLLM's `model_list`: the pool that it becomes, its share of the requests, and its bounds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Final

from config.catalogue.reading import ModelCatalogue, catalogue
from config.imports.draft import Blueprint
from config.imports.hosting import (
    NO_PROVIDER,
    UNSAFE,
    URL_EXAMPLE,
    Access,
    Secrets,
    Unreachable,
    may_be_secret,
    pool_of,
)
from config.imports.price_list import PriceListError, price_of
from config.imports.providers import OTHER_NAMES, guessed, provider_of
from config.imports.survey import ForeignValue, plain
from config.schema.pool import PoolConfig
from config.schema.protocols.egress import HeaderConfig
from config.schema.rewrite import RewriteConfig

_VALUES: Final = frozenset({
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "n", "stop", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "user", "response_format", "tools",
    "tool_choice", "parallel_tool_calls", "reasoning_effort", "verbosity", "thinking", "service_tier", "metadata",
    "store", "modalities", "dimensions", "encoding_format", "input_type", "safety_settings", "chat_template_kwargs",
    "logprobs", "top_logprobs", "prompt_cache_key", "web_search_options", "voice", "size", "quality",
})  # fmt: skip
"""Fields of requests that a deployment presets."""
_CALLS: Final = {
    "image_generation": ("images",),
    "audio_transcription": ("audio",),
    "audio_speech": ("audio",),
    "rerank": ("rerank",),
    "moderation": ("moderations",),
}
_FROM_KEYS: Final = {"api_base", "base_url", "api_key", "api_version"}
_AWS: Final = {"aws_access_key_id": "key_id", "aws_secret_access_key": "secret", "aws_session_token": "session_token"}
_AWS_PLAIN: Final = {
    "aws_profile_name": "profile",
    "aws_role_name": "role",
    "aws_session_name": "session_name",
    "aws_external_id": "external_id",
}
_PUBLISHERS: Final = {
    "azure": "openai",
    "azure_text": "openai",
    "bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "vertex_ai": "google",
    "vertex_ai_beta": "google",
}
"""Clouds whose address does not name the provider of the catalogue."""
_PLAIN_HEADERS: Final = re.compile(r"(openai|anthropic)-.+|http-referer|x-title|user-agent", re.IGNORECASE)
"""Headers that are no credentials. Any other may be one."""
_COST: Final = re.compile(r"cost|pricing")


@dataclass
class Deployment:
    """One entry. Seconds of `timeout` and `first_byte`; requests and tokens of a minute."""

    name: str
    part: ForeignValue
    pool: dict[str, Any] = field(default_factory=dict)
    wish: str = ""
    family: str = ""
    """The beginning of the clients' names that the provider's names do not have, for a wildcard."""
    weight: Decimal | None = None
    order: int = 1
    rpm: int | None = None
    tpm: int | None = None
    timeout: Decimal | None = None
    first_byte: Decimal | None = None
    retries: int | None = None
    rewrite: dict[str, Any] = field(default_factory=dict)
    strict: bool | None = None
    price: dict[str, Any] | None = None
    published: str = ""
    """The day of the catalogue from which the price is; empty for a price of the file."""


def read(
    part: ForeignValue, credentials: Mapping[str, ForeignValue], draft: Blueprint, secrets: Secrets
) -> Deployment | None:
    """Read one entry; None for one that cannot be imported, whose part then has the reason."""
    params, name = part["litellm_params"], part["model_name"].text()
    written = params["model"].text()
    if name is None or written is None:
        part.leave("has no `model_name` or no `litellm_params.model`: there is nothing to serve")
        return None
    reader = _Reader(name, part, credentials, draft, secrets)
    try:
        return reader.read(written)
    except Unreachable as error:
        part.leave(_refusal(written, str(error)))
        return None


def _refusal(written: str, reason: str) -> str:
    provider = written.partition("/")[0]
    return f"is not imported: the provider `{provider}` has no equivalent" if reason == NO_PROVIDER else reason


class _Reader:
    def __init__(
        self, name: str, part: ForeignValue, credentials: Mapping[str, ForeignValue], draft: Blueprint, secrets: Secrets
    ) -> None:
        self._part, self._params, self._info = part, part["litellm_params"], part["model_info"]
        self._draft, self._secrets = draft, secrets
        self._made = Deployment(name, part)
        self._shared: ForeignValue | None = None
        credential = self._params["litellm_credential_name"]
        if (written := credential.text()) is not None:
            self._shared = credentials.get(written)
            if self._shared is None:
                credential.leave("names no entry of `credential_list`")

    def read(self, written: str) -> Deployment:
        provider, model = self._model(written)
        access = self._access(provider, model)
        self._place(access, written)
        made = self._made
        made.pool = pool_of(access, self._draft)
        if (parallel := self._params["max_parallel_requests"].whole(1)) is not None:
            made.pool["max_connections"] = parallel
        self._mark(self._params["cache_control_injection_points"])
        made.wish = f"{provider}-{access.model or 'models'}"
        self._bounds()
        self._values()
        self._prices()
        if made.price is None and access.model:
            self._publish(access)
        return made

    def _mark(self, points: ForeignValue) -> None:
        """Have the gateway mark prompts for the cache of the provider."""
        marks = {"system": False, "tools": False, "turns": 0}
        for point in points:
            where, role, index = (point[name].value for name in ("location", "role", "index"))
            if where == "tool_config":
                marks["tools"] = True
            elif where == "message" and role == "system" and index is None:
                marks["system"] = True
            elif where == "message" and role in (None, "user") and (role or index) in ("user", -1, "-1"):
                marks["turns"] = 1
            else:
                points.leave("is not imported: `prompt_cache` marks the system prompt, the tools and the last turns")
                return
        pool = {**self._made.pool, "prompt_cache": marks}
        if points and self._draft.error(PoolConfig, {"name": "pool", **pool}) is None:
            self._made.pool = pool
            points.use()
        else:
            points.leave("has no effect: `prompt_cache` is for the protocols anthropic, bedrock, gemini and vertex")

    def _model(self, written: str) -> tuple[str, str]:
        """The provider and its name of the model."""
        given = self._params["custom_llm_provider"].text()
        if given is not None:
            return given, written.removeprefix(f"{given}/")
        provider, slash, model = written.partition("/")
        if slash and (_is_provider(provider) or (not guessed(written) and "api_base" not in self._written())):
            return provider, model
        if written == "*":
            raise Unreachable(
                "is for every provider: write a model for each family of names, such as `gpt-*` and `claude-*`"
            )
        if (provider := guessed(written)) or "api_base" in self._written():
            return provider or "openai", written
        raise Unreachable("names no provider: write `PROVIDER/MODEL` in its `model`")

    def _written(self) -> set[str]:
        value = self._params.value
        return set(value) if isinstance(value, dict) else set()

    def _of(self, name: str) -> ForeignValue:
        """A field of the deployment, or of its credential."""
        own = self._params[name]
        if own or self._shared is None or name not in _FROM_KEYS | set(_AWS) | {"aws_region_name"}:
            return own
        return self._shared["credential_values"][name]

    def _access(self, provider: str, model: str) -> Access:
        slug = OTHER_NAMES.get(provider, provider)
        listed = provider_of(slug)
        variable = listed.key if listed is not None and listed.key else f"{slug.upper().replace('-', '_')}_API_KEY"
        access = Access(slug, model)
        for name in ("base_url", "api_base"):
            if url := self._secrets.text(self._of(name), URL_EXAMPLE):
                access.url = url
        access.key = self._secrets.reference(self._of("api_key"), variable)
        version = self._of("api_version")
        access.version = self._secrets.text(version, "2024-10-21")
        if access.version and not re.fullmatch(
            r"\$\{\w+\}|\d{4}-\d{2}-\d{2}(-preview)?|v1|preview|latest", access.version
        ):
            version.leave("is no version of Azure's API: it is used without one, under `/openai/v1`")
        if (organization := self._secrets.text(self._params["organization"])) != "":
            access.headers.append({"name": "OpenAI-Organization", "value": organization})
        for header in (*self._params["extra_headers"], *self._params["headers"]):
            self._header(header, access)
        if (mode := self._info["mode"]).value in _CALLS:
            access.calls = _CALLS[str(mode.use())]
        if mode.value == "responses" or access.model.startswith("responses/"):
            mode.use()
            access.model, access.native = access.model.removeprefix("responses/"), True
        self._cloud(access)
        return access

    def _header(self, header: ForeignValue, access: Access) -> None:
        """Add a header of every request. Anthropic's betas are a field of its protocol."""
        if header.name.lower() == "anthropic-beta" and access.provider == "anthropic":
            access.betas = [beta.strip() for beta in self._secrets.text(header).split(",")]
            return
        if _PLAIN_HEADERS.fullmatch(header.name):
            made = {"value": self._secrets.text(header)}
        else:
            made = {"secret": self._secrets.reference(header, re.sub(r"\W", "_", header.name).upper())}
        field = {"name": header.name, **made}
        if not all(field.values()):
            header.leave("is no header of a pool: its value is no text")
        elif (error := self._draft.error(HeaderConfig, field)) is None:
            access.headers.append(field)
        else:
            header.leave(f"is no header of a pool: {error}")

    def _cloud(self, access: Access) -> None:
        params = self._params
        access.region = self._secrets.text(self._of("aws_region_name"), "us-east-1")
        if access.provider == "bedrock":
            access.model = re.sub(r"^(converse|converse_like|invoke|mantle)/", "", access.model)
            if (match := re.match(r"([a-z]{2}(-gov)?-[a-z]+-\d)/(.+)", access.model)) is not None:
                access.region, access.model = access.region or match[1], match[3]
            pair = {ours: self._secrets.reference(self._of(name), name.upper()) for name, ours in _AWS.items()}
            pair |= {ours: self._secrets.text(self._params[name], "role") for name, ours in _AWS_PLAIN.items()}
            if given := {name: value for name, value in pair.items() if value}:
                access.credentials = {"aws": given}
        access.project = self._secrets.text(params["vertex_project"], "project")
        access.location = self._secrets.text(params["vertex_location"], "us-central1")
        if (keys := params["vertex_credentials"]) and access.provider.startswith("vertex_ai"):
            path = keys.text()
            if path is not None and not path.lstrip().startswith("{") and environment_free(path):
                access.credentials = {"google": {"file": path}}
            else:
                keys.leave("needs a person: write the file of the service account in `credentials.google` of the pool")
        tenant, client, secret = (params[name] for name in ("tenant_id", "client_id", "client_secret"))
        if access.provider.startswith("azure") and tenant and client and secret:
            access.credentials = {
                "azure": {
                    "tenant": self._secrets.text(tenant),
                    "client_id": self._secrets.text(client),
                    "secret": self._secrets.reference(secret, "AZURE_CLIENT_SECRET"),
                }
            }

    def _place(self, access: Access, written: str) -> None:
        """Serve a wildcard under each name that clients write."""
        made = self._made
        if "*" not in access.model:
            if "*" in made.name:
                self._draft.note("models", made.name, f"Every name is served by the one model {access.model}.")
            return
        if access.model != "*" and access.model.count("*") + made.name.count("*") != 2:
            raise Unreachable("is a wildcard inside a name: write a model for each name")
        start, _, end = made.name.partition("*")
        theirs, _, their_end = access.model.partition("*")
        if "*" not in made.name or end != their_end or (theirs and not start.endswith(theirs)):
            raise Unreachable("is a wildcard whose names differ from those of clients: write a model for each name")
        access.model = ""
        made.family = start.removesuffix(theirs)

    def _bounds(self) -> None:
        made, params = self._made, self._params
        made.weight = params["weight"].number()
        made.order = params["order"].whole(0) or 1
        made.rpm, made.tpm = params["rpm"].whole(1), params["tpm"].whole(1)
        made.timeout = seconds(params["timeout"])
        made.first_byte = seconds(params["stream_timeout"])
        retries = params["max_retries"].whole(0)
        made.retries = params["num_retries"].whole(0) if retries is None else retries
        if (drops := params["drop_params"].flag()) is not None:
            made.strict = not drops

    def _values(self) -> None:
        """The presets of the request's fields, each only if it can be one."""
        rewrite: dict[str, Any] = {}
        extra = self._params["extra_body"]
        for part in (*(each for each in self._params if each.name in _VALUES), *extra):
            attempt = {**rewrite.get("defaults", {}), part.name: plain(part.value)}
            if may_be_secret(part.name, part.value):
                part.leave(UNSAFE)
            elif self._draft.error(RewriteConfig, {"defaults": attempt}) is None:
                rewrite["defaults"] = attempt
                part.use()
            else:
                part.leave("cannot be preset by a route")
        dropped = self._params["additional_drop_params"]
        names = [name for name in dropped.texts() if name not in rewrite.get("defaults", {})]
        if names and self._draft.error(RewriteConfig, {**rewrite, "drop": tuple(names)}) is None:
            rewrite["drop"] = names
        else:
            dropped.leave("cannot be dropped by a route: only whole fields can")
        self._made.rewrite = rewrite

    def _publish(self, access: Access) -> None:
        """Take the price from the catalogue, as LiteLLM takes it from its own list."""
        base = self._info["base_model"]
        name = str(base.value).rpartition("/")[2] if isinstance(base.value, str) else access.model
        url = next(iter(self._made.pool.get("endpoints", ())), "")
        provider = _PUBLISHERS.get(access.provider) or _book().provider_at(url)
        facts = _book().find(name, provider) if provider is not None else None
        if facts is not None and facts.price is not None:
            self._made.price, self._made.published = facts.written_price(), _book().date
            base.use()

    def _prices(self) -> None:
        costs = {
            part.name: part for section in (self._info, self._params) for part in section if _COST.search(part.name)
        }
        values = {name: part.number() for name, part in costs.items()}
        entry = {name: value for name, value in values.items() if value is not None}
        try:
            self._made.price = price_of(entry) if entry else None
        except PriceListError as error:
            for part in costs.values():
                part.leave(f"is no price here: {error}")
            return
        for name, part in costs.items():
            if self._made.price is None or (name not in _READ_COSTS and not name.endswith("_tokens")):
                part.leave("has no equivalent: a price is of tokens or of a request")


_READ_COSTS: Final = frozenset({
    "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost",
    "output_cost_per_reasoning_token", "input_cost_per_token_batches", "output_cost_per_token_batches",
})  # fmt: skip


@cache
def _book() -> ModelCatalogue:
    return catalogue()


def _is_provider(slug: str) -> bool:
    clouds = ("azure", "azure_ai", "azure_text", "bedrock", "vertex_ai", "vertex_ai_beta")
    return slug in clouds or provider_of(slug) is not None


def environment_free(text: str) -> bool:
    """Whether a text names no environment variable."""
    return not text.startswith("os.environ/")


def seconds(part: ForeignValue) -> Decimal | None:
    """A time in seconds, above zero."""
    number = part.number()
    if number is not None and not Decimal("0.001") <= number <= 10**7:
        part.leave("is no time that is possible here")
        return None
    return number
