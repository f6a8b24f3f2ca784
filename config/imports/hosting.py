"""A model at a provider, as another gateway's file describes it, and the pool that reaches it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from config.imports.draft import Blueprint, free
from config.imports.providers import OTHER_NAMES, ProviderRow, provider_of
from config.imports.survey import ForeignValue
from config.schema.pool import PoolConfig

_CALLS: Final = re.compile(r"/(chat/completions|completions|embeddings|messages|responses|rerank)/?$")
_ROOT: Final = re.compile(
    r"(/openai)?/v\d+((alpha|beta)\d*)?(/openai)?$|/v\d+/[^/]+/[^/]+/compat$|/endpoints/openapi$|/serving-endpoints$"
)
"""Roots that a pool recognises at the end of a URL."""
_DEPLOYMENT: Final = re.compile(r"/openai(/deployments/[^/]+)?(/v1)?(/.*)?$")
_DATED: Final = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
_SECRET: Final = re.compile(r"key(?!word|board)|token|secret|passw|credential|auth(?!or)", re.IGNORECASE)
_SECRET_IN_QUERY: Final = re.compile(r"[?&][^=&]*(key|token|secret|passw|sig)[^=&]*=", re.IGNORECASE)
_NO_SECRETS: Final = frozenset({
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample", "min_tokens",
    "min_new_tokens", "budget_tokens", "truncate_prompt_tokens", "skip_special_tokens", "add_special_tokens",
    "spaces_between_special_tokens", "stop_token_ids", "return_token_ids", "return_tokens_as_token_ids",
    "prompt_cache_key",
})  # fmt: skip
"""Fields of requests whose names only look like those of secrets."""
UNSAFE: Final = "may be a secret: a file of Headrace has no secrets in it"
URL_EXAMPLE: Final = "https://placeholder.invalid"
NO_PROVIDER: Final = "is of a provider that has no equivalent"
_AZURE: Final = frozenset({"azure", "azure_text", "azure-openai"})
_FOUNDRY: Final = frozenset({"azure_ai", "azure-ai"})


class Unreachable(Exception):
    """No pool reaches this model. The message is the reason."""


@dataclass
class Access:
    """Where a model is, and with which credential."""

    provider: str
    model: str = ""
    """The provider's name of the model; empty for the name that clients use."""
    url: str = ""
    key: str = ""
    """A reference to a secret."""
    version: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    region: str = ""
    project: str = ""
    location: str = ""
    credentials: dict[str, Any] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    """Calls beyond chats that the model is for."""
    betas: list[str] = field(default_factory=list)
    """Anthropic's betas of every request."""
    native: bool = False
    """Whether the model is for OpenAI's Responses at the provider."""


def pool_of(access: Access, draft: Blueprint) -> dict[str, Any]:
    """The fields of the pool, without a name. Raises `Unreachable`."""
    fields = _fields(access, draft)
    if access.model:
        fields["model"] = access.model
    if access.headers:
        fields["headers"] = access.headers
    if (error := draft.error(PoolConfig, {"name": "pool", **fields})) is not None:
        raise Unreachable(f"cannot be a pool: {error}")
    return fields


def _fields(access: Access, draft: Blueprint) -> dict[str, Any]:
    slug = OTHER_NAMES.get(access.provider, access.provider)
    if slug in _AZURE:
        return _azure(access, draft)
    if slug in _FOUNDRY:
        return _foundry(access, draft)
    if slug in ("bedrock", "bedrock_converse"):
        return _bedrock(access, draft)
    if slug in ("vertex_ai", "vertex_ai_beta", "vertex-ai"):
        return _vertex(access)
    provider = provider_of(slug)
    if provider is None:
        raise Unreachable(NO_PROVIDER)
    return _of_table(access, provider, draft)


def _of_table(access: Access, provider: ProviderRow, draft: Blueprint) -> dict[str, Any]:
    given: dict[str, Any] = (
        {"name": provider.protocol} if isinstance(provider.protocol, str) else dict(provider.protocol)
    )
    url, elsewhere = access.url or provider.url, bool(access.url)
    if not url:
        raise Unreachable("has no `api_base`: its server's address is missing")
    if given["name"] == "openai":
        url, root = _openai_root(url, elsewhere)
        if elsewhere:
            given.pop("root", None)
            if given.get("dialect") == "openai" and not url.startswith("https://api.openai.com"):
                given = {"name": "openai"}  # any server with OpenAI's API
        if root:
            given["root"] = root
        if access.native:
            given["responses"] = True
        passes = tuple(dict.fromkeys((*(provider.passes if not elsewhere else ()), *access.calls)))
        if passes:
            given["passes"] = list(passes)
    elif given["name"] == "anthropic":
        url = re.sub(r"(/v1)?/?$", "", _CALLS.sub("", url))
        if access.betas:
            given["betas"] = access.betas
    made: dict[str, Any] = {"protocol": _short(given), "endpoints": [url]}
    key = access.key or (draft.variable(provider.key) if provider.key and not provider.local else "")
    if key:
        made["key"] = key
    return made if provider.local else made | {"probe": None}


def _openai_root(url: str, elsewhere: bool) -> tuple[str, str]:
    """The URL without the path of a call, and the root if it must be written."""
    url = _CALLS.sub("", url).rstrip("/")
    path = urlsplit(url).path
    return url, "/" if elsewhere and path and not _ROOT.search(path) else ""


def _azure(access: Access, draft: Blueprint) -> dict[str, Any]:
    if not access.url:
        raise Unreachable("has no `api_base`: the address of its Azure resource is missing")
    protocol: dict[str, Any] = {"name": "openai", "dialect": "azure"}
    dated = _DATED.fullmatch(access.version) or access.version.startswith("${")
    if dated:
        protocol["api_version"] = access.version
    if access.native and not dated:
        protocol["responses"] = True
    if access.calls:
        protocol["passes"] = list(access.calls)
    made: dict[str, Any] = {"protocol": protocol, "endpoints": [_DEPLOYMENT.sub("", access.url).rstrip("/")]}
    return {**made, **_credential(access, draft, "AZURE_API_KEY"), "probe": None}


def _foundry(access: Access, draft: Blueprint) -> dict[str, Any]:
    if not access.url:
        raise Unreachable("has no `api_base`: the address of its resource is missing")
    host = re.sub(r"^(https?://[^/]+|\$\{\w+\}).*$", r"\1", access.url)
    if access.model.startswith("claude"):
        made: dict[str, Any] = {"protocol": {"name": "anthropic", "at": "foundry"}, "endpoints": [f"{host}/anthropic"]}
    else:
        made = {"protocol": {"name": "openai", "dialect": "azure"}, "endpoints": [host]}
    return {**made, **_credential(access, draft, "AZURE_AI_API_KEY"), "probe": None}


def _bedrock(access: Access, draft: Blueprint) -> dict[str, Any]:
    """Claude has its own API at Bedrock, other models have Converse."""
    if not access.region:
        raise Unreachable("has no `aws_region_name`: write the region of Bedrock")
    if "anthropic.claude" in access.model:
        protocol = {"name": "anthropic", "at": "bedrock", "region": access.region}
    else:
        protocol = {"name": "bedrock", "region": access.region}
    if access.key:
        return {"protocol": protocol, "key": access.key, "probe": None}
    return {"protocol": protocol, "credentials": access.credentials or {"aws": {}}, "probe": None}


def _vertex(access: Access) -> dict[str, Any]:
    if not access.project:
        raise Unreachable("has no `vertex_project`: write the Google Cloud project")
    at = {"project": access.project, "location": access.location or "global"}
    protocol = {"name": "anthropic", "at": "vertex", **at} if "claude" in access.model else {"name": "vertex", **at}
    return {"protocol": protocol, "credentials": access.credentials or {"google": {}}, "probe": None}


def _credential(access: Access, draft: Blueprint, variable: str) -> dict[str, Any]:
    if access.credentials:
        return {"credentials": access.credentials}
    return {"key": access.key or draft.variable(variable)}


def _short(protocol: Mapping[str, Any]) -> Any:
    return protocol["name"] if len(protocol) == 1 else dict(protocol)


class Secrets:
    """References to the secrets of a foreign file. A secret that is written there becomes a variable to set."""

    def __init__(self, draft: Blueprint) -> None:
        self._draft = draft
        self._names: dict[str, str] = {}

    def reference(self, part: ForeignValue, variable: str, example: str = "secret") -> str:
        """The reference for a secret, which may itself be a reference: ``os.environ/NAME``. Empty without a value."""
        value = part.value
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            return ""
        part.use()
        text = str(value)
        if (name := environment(text)) is not None:
            return self._draft.variable(name, example)
        chosen = self._names.get(text) or free(variable, self._draft.variables, "_")
        self._names[text] = chosen
        self._draft.task(
            f"Set {chosen} in the environment to the secret on line {part.line} of the source: a file of Headrace has"
            " no secrets in it. It was readable there, so change it.",
            chosen,
        )
        return self._draft.variable(chosen, example)

    def text(self, part: ForeignValue, example: str = "placeholder") -> str:
        """A plain text, or the reference of one; empty without a value."""
        value = part.text()
        if value is None:
            return ""
        name = environment(value)
        return value if name is None else self._draft.variable(name, example)

    def url(self, part: ForeignValue, variable: str, example: str) -> str:
        """A URL, or the reference of one that has a password in it; empty without a value."""
        match = re.search(r"://(?:[^:@]*:)?(.+)@", str(part.value))
        if _SECRET_IN_QUERY.search(str(part.value)) or (match and not re.fullmatch(r"\$\{[A-Za-z_]\w*\}", match[1])):
            return self.reference(part, variable, example)
        return self.text(part, example)


def may_be_secret(name: str, value: object) -> bool:
    """Whether a field is a secret by its name, or has such a field in it. A mapping under such a name is none: the
    schema of a tool may describe one."""
    if isinstance(value, Mapping):
        return any(may_be_secret(str(inner), each) for inner, each in value.items())
    if isinstance(value, tuple):
        return any(may_be_secret(name, each) for each in value)
    return value is not None and _SECRET.search(name) is not None and name not in _NO_SECRETS


def environment(text: str) -> str | None:
    """The variable of ``os.environ/NAME`` and ``${NAME}``; None for a plain text."""
    match = re.fullmatch(r"os\.environ/(\S+)|\$\{?([A-Za-z_]\w*)\}?|\{\{\s*([A-Za-z_]\w*)\s*\}\}", text.strip())
    return None if match is None else match[1] or match[2] or match[3]
