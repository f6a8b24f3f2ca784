"""Evaluates a configuration for a request, step by step as `Core` does, with reasons."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError, Forbidden, NotFound, Unsupported
from adapters.requests import ModelRequest, RankingRequest
from adapters.types import InferKind
from adapters.wire.oip import request_view as oip_view
from adapters.wire.openai import chat as wire
from adapters.wire.openai import model_field as named
from config.cases import RequestConfig
from config.problem import closest
from config.schema.config import ClientModelConfig, Config, LlmRuntime, PoolConfig, RouteConfig, TenantConfig
from config.schema.pipelines.pipeline import PipelineConfig
from config.schema.protocols.language import OpenAIProtocol
from gateway.auth.keys import Principal
from gateway.auth.table import written_keys
from gateway.features.explain.text import replicas_of
from gateway.request.path_parts import facts_of
from gateway.traffic.queue import PRIORITY_HEADER
from policies.facts import Facts
from policies.guards.selection import applied_guards, exemption, guards_of
from policies.limits.price import Price
from policies.routing import explain
from policies.routing.drawing import drawn
from policies.routing.explain import MAX_SHOWN, Explanation, Side
from policies.routing.rewrite import Fields, NotANumber, Rewrite
from policies.routing.rules import Catalogue, ModelList, ResolvedModel

_IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]


_DECODE: dict[str, Callable[[bytes], ModelRequest]] = {
    "chat": wire.decode_chat,
    "text_completion": wire.decode_completion,
    "embeddings": wire.decode_embedding,
    "rerank": partial(named.ranking_request, "rerank"),
    "score": partial(named.ranking_request, "score"),
    "classify": partial(named.ranking_request, "classify"),
}
TENSORS = ("infer", "explain")
"""The operations of tensors."""
BATCH = "batch"
"""The band of lines of batches."""


def request_of(description: RequestConfig) -> ModelRequest:
    """The described request. Raises `CallerError` for a body that a front would reject."""
    request = (
        _tensors(description)
        if description.front in TENSORS
        else _DECODE[description.front](msgspec.json.encode(body_of(description)))
    )
    tokens = description.prompt_tokens
    return request if tokens is None else replace(request, prompt_tokens=tokens)


def headers_of(description: RequestConfig) -> dict[str, str]:
    """The headers of the described request, with lower-case names."""
    return {name.lower(): value for name, value in description.header.items()}


def principal_of(description: RequestConfig, holder: Principal | None) -> Principal:
    """The described client: the holder of the key, if there is one, with the described roles and labels."""
    if holder is None or holder.tenant != description.tenant:
        return Principal(
            description.tenant, description.key, frozenset({"user", *description.roles}), description.labels
        )
    roles, labels = holder.roles | set(description.roles), {**holder.labels, **description.labels}
    return Principal(description.tenant, description.key, roles, labels, holder.scope)


def _tensors(description: RequestConfig) -> ModelRequest:
    """A request of tensors. Its `body` has the parameters."""
    body = msgspec.json.encode({"inputs": [{"name": "x", "shape": [1, 1]}], "parameters": description.body})
    kind: InferKind = "infer_stream" if description.stream else "infer"
    if description.front == "explain":
        kind = "explain"
    return oip_view.request_of(body, model=description.model, version="", kind=kind)


def body_of(description: RequestConfig) -> dict[str, Any]:
    """The body that the client would send; for tensors, the parameters and the name of the model."""
    if description.front in TENSORS:
        return {"model": description.model, **description.body}
    content: object = _IMAGE if description.vision else "…"
    prompts: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": content}]},
        "text_completion": {"prompt": "…"},
        "embeddings": {"input": "…"},
        "rerank": {"query": "…", "documents": ["…"]},
        "score": {"text_1": "…", "text_2": "…"},
        "classify": {"input": "…"},
    }
    body: dict[str, Any] = {"model": description.model, **prompts[description.front]}
    if description.stream:
        body["stream"] = True
    if description.user is not None:
        body["user"] = description.user
    if description.max_tokens is not None:
        body["max_tokens"] = description.max_tokens
    if description.tools:
        body["tools"] = [{"type": "function", "function": {"name": "f"}}]
    if description.json_schema:
        body["response_format"] = {"type": "json_schema"}
    return {**body, **description.body}


class _RefusedError(Exception):
    """A rejection: the code for the client, and the reason, which the client does not receive."""

    def __init__(self, code: str, because: str, near: str | None = None) -> None:
        self.code = code
        self.because = because if near is None else f'{because} (did you mean "{near}"?)'


@dataclass(frozen=True, slots=True)
class Policy:
    """Explains requests under one configuration. `holder` returns the holder of a key by its id."""

    config: Config
    catalogue: Catalogue
    allowed: Mapping[str, ModelList]
    holder: Callable[[str], Principal | None]

    @classmethod
    def of(cls, config: Config) -> "Policy":
        """The policy of a configuration that is not in force. It has only the keys of the file."""
        keys = {key_id: record.principal for key_id, record in written_keys(config).items()}
        allowed = {tenant.name: ModelList(tenant.models) for tenant in config.tenants}
        return cls(config, Catalogue(config.models), allowed, keys.get)

    def explain_description(
        self, description: RequestConfig, now_utc: float, holder: Principal | None = None
    ) -> Explanation:
        """Explain a described request. `now_utc` is its time if it names none; `holder` is the holder of its key if
        the key is not in the file."""
        try:
            request = request_of(description)
        except CallerError as error:
            return Explanation(description.tenant, description.model, refused=error.code, because=error.message)
        principal = principal_of(description, holder or self.holder(description.key))
        now = description.at.timestamp() if description.at else now_utc
        band = BATCH if description.batch else None
        return self.explain(principal, request, headers_of(description), now, band=band)

    def explain(
        self,
        principal: Principal,
        request: ModelRequest,
        headers: Mapping[str, str],
        now_utc: float,
        *,
        band: str | None = None,
    ) -> Explanation:
        """Explain a request as decoded by a front; `band` is that of a line of a batch."""
        explanation = Explanation(principal.tenant, request.model[:MAX_SHOWN], band=band)
        headers = headers if band is None else {**headers, PRIORITY_HEADER: band}
        before = request.codec.fields(request)
        try:
            model = self._model(principal, request)
            if model.name and model.name != request.model:
                request = request.codec.rename(request, model.name)
            facts = facts_of(principal, request, model, headers, "", now_utc)
            routes = tuple(explain.routes_of(self.config, self._index(model.rules.model), facts))
            explanation = replace(explanation, model=model.rules.model, version=model.version or None, routes=routes)
            return self._led(explanation, principal, request, facts, before)
        except _RefusedError as error:
            return replace(explanation, refused=error.code, because=error.because)

    def _model(self, principal: Principal, request: ModelRequest) -> ResolvedModel:
        """The model with the requested name. Raises `_RefusedError` if the client may not use it."""
        tenant, requested, scope = principal.tenant, request.model, principal.scope
        if tenant not in self.allowed:
            raise _RefusedError(NotFound.code, f'no tenant is named "{tenant}"', closest(tenant, self.allowed))
        try:
            if scope is not None:
                scope.check_front(request.operation)
        except Forbidden as error:
            raise _RefusedError(error.code, f"the scopes of its key are not for {request.operation}") from None
        resolved = self.catalogue.find(requested)
        if resolved is None:
            names = [name for model in self.config.models for name in (model.name, *model.aliases)]
            shown = requested[:MAX_SHOWN]
            raise _RefusedError(NotFound.code, f'no model has the name "{shown}"', closest(shown, names))
        name = resolved.name or requested
        if not self.allowed[tenant].allows(name):
            raise _RefusedError(NotFound.code, f'the tenant\'s `models` do not have "{name[:MAX_SHOWN]}"')
        if scope is not None and not scope.allows_model(name):
            raise _RefusedError(NotFound.code, f'the scopes of its key do not include the model "{name[:MAX_SHOWN]}"')
        return resolved

    def _led(
        self, explanation: Explanation, principal: Principal, request: ModelRequest, facts: Facts, before: Fields
    ) -> Explanation:
        """Add the target of the matching route to an explanation."""
        model = self.config.models[self._index(explanation.model)]
        if model.pipeline is not None:
            guarded = _with_guards(explanation, self.config, principal, model, 0)
            return self._piped(guarded, model, model.pipeline, request, facts)
        last = explanation.routes[-1]
        if not last.matches:
            raise _RefusedError(NotFound.code, "no route matches it, and there is no `else`")
        route = model.routes[last.route]
        if principal.scope is not None and not principal.scope.allows_route(route.name):
            raise _RefusedError(NotFound.code, f"the scopes of its key do not include routes[{last.route}]")
        to, arms = explain.sides_of(model, last.route, facts)
        self._check_passes(request, to)
        try:
            request = _rewritten(request, route, to)
        except NotANumber as error:
            raise _RefusedError(CallerError.code, str(error)) from None
        tenant = next(tenant for tenant in self.config.tenants if tenant.name == principal.tenant)
        return replace(
            _with_guards(explanation, self.config, principal, model, last.route),
            to=to,
            arms=arms,
            sent=explain.changed(before, self._sent(request, to)),
            cost=_cost(explanation, model, request, facts),
            limits=_limits(explanation, tenant, model, request),
            settings={**explain.settings_of(route), **replicas_of(self._pool(to))},
        )

    def _piped(
        self,
        explanation: Explanation,
        model: ClientModelConfig,
        pipeline: PipelineConfig,
        request: ModelRequest,
        facts: Facts,
    ) -> Explanation:
        """Add the steps of a pipeline, and the pools of their models, to an explanation."""
        tenant = next(tenant for tenant in self.config.tenants if tenant.name == explanation.tenant)
        return replace(
            explanation,
            steps=drawn(pipeline, facts, {name: self._served_by(name) for name in pipeline.models()}),
            cost=_cost(explanation, model, request, facts),
            limits=_limits(explanation, tenant, model, request),
        )

    def _served_by(self, name: str) -> str:
        """The pools of a model, or that it is a pipeline."""
        resolved = self.catalogue.find(name)
        if resolved is None:
            return "unknown"
        model = self.config.models[self._index(resolved.rules.model)]
        if model.pipeline is not None:
            return "a pipeline"
        return ", ".join(dict.fromkeys(pool for route in model.routes for pool in route.pools()))

    def _index(self, name: str | None) -> int:
        return next(i for i, model in enumerate(self.config.models) if model.name == name)

    def _pool(self, to: Side | None) -> PoolConfig | None:
        return next((pool for pool in self.config.pools if to is not None and pool.name == to.pool), None)

    def _check_passes(self, request: ModelRequest, to: Side | None) -> None:
        """Raises `_RefusedError` for a pool that does not forward the operation."""
        pool = self._pool(to)
        if pool is None or not isinstance(request, RankingRequest) or pool.forwards(request.operation):
            return
        because = f"the pool {pool.name} does not forward {request.operation}"
        if isinstance(pool.protocol, OpenAIProtocol):
            because = f"{because}: if its servers support it, list it in `passes` of the protocol"
        raise _RefusedError(Unsupported.code, because)

    def _sent(self, request: ModelRequest, to: Side | None) -> Fields:
        """The body that the first pool receives."""
        pool = self._pool(to)
        fields = request.codec.fields(request)
        name = None if pool is None else pool.model_name
        if pool is not None and isinstance(pool.runtime, LlmRuntime) and pool.runtime.adapters:
            sent = msgspec.json.decode(fields["model"], type=str)
            name = sent if sent in pool.runtime.adapters else name
        return fields if name is None else {**fields, "model": Raw(msgspec.json.encode(name))}


def _with_guards(
    explanation: Explanation, config: Config, principal: Principal, model: ClientModelConfig, route: int
) -> Explanation:
    """Add the guards of a request, and those from which its client is exempt, to an explanation."""
    place = principal.tenant, model.name, route
    reasons = (
        (guard.name, exemption(guard, principal.roles, principal.key_id)) for guard in applied_guards(config, *place)
    )
    return replace(
        explanation,
        guards=tuple(
            f"{guard.name} ({guard.action}{'' if guard.mode == 'enforce' else ', ' + guard.mode})"
            for guard in guards_of(config, *place, principal.roles, principal.key_id)
        ),
        exempt=tuple(f"{name} ({reason})" for name, reason in reasons if reason is not None),
    )


def _rewritten(request: ModelRequest, route: RouteConfig, to: Side | None) -> ModelRequest:
    """The request that the route, or the arm of its rollout or experiment, sends. Raises `NotANumber`."""
    rewrite, compared = route.rewrite, route.comparison
    if compared is not None and to is not None:
        rewrite = next((arm.rewrite for arm in compared.sides if arm.label == to.arm), None) or rewrite
    if rewrite is None:
        return request
    codec = request.codec
    fields = Rewrite(rewrite)(codec.fields(request), lambda name: codec.accepts(request, name))
    return codec.rewrite(request, fields)


def _cost(explanation: Explanation, model: ClientModelConfig, request: ModelRequest, facts: Facts) -> str | None:
    """The cost to reserve, at the price of batches for a line of a batch."""
    if model.price is None:
        return None
    price = Price(model.price)
    row = (price if explanation.band is None else price.of_batch).at(facts.time)
    return str(row.estimate(request.prompt_tokens, request.max_tokens, request.n))


def _limits(
    explanation: Explanation, tenant: TenantConfig, model: ClientModelConfig, request: ModelRequest
) -> tuple[dict[str, Any], ...]:
    """The limits of the tenant and of the model, and the bounds on batches for a line of one."""
    limits = explain.limits_of(tenant, request.model) + explain.quotas_of(model)
    if explanation.band is None:
        return limits
    return (*limits, {"per": "tenant", "batches": tenant.batches.model_dump(mode="json", exclude_none=True)})
