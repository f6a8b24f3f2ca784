"""The decision of a configuration for a recorded request: the path of `Core`, without its servers.

The recorder and the replay both decide here. A record is marked if its own configuration does not decide as the gateway
did, so that a replay under the same file changes no decision.

A record has no user's name. It has a keyed digest of it with a number: the first number with which the digest gets the
arms that the user got. A split selects an arm by a hash of its subject, so the stand-in is as good as the user: under
the same weights it has the same arm, and of those with one arm, other weights move the same share.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

import msgspec

from adapters.errors import Forbidden, NotFound
from config.checks.guards import words_of
from config.schema.config import Config
from config.schema.guards import NamedGuardConfig, WordsGuardConfig
from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from gateway.features.explain.why import Policy
from gateway.features.recording.entries import FEATURES, Holder, RecordEntry
from gateway.features.recording.segments import keyed_digest
from policies.facts import Facts, Feature
from policies.limits.price import Price
from policies.rollouts.live import LiveComparison
from policies.routing.conditions import requirements
from policies.routing.decision import Decision
from policies.routing.rules import Catalogue, ResolvedModel, comparisons_of

NOT_FOUND, NOT_IN_SCOPE = NotFound.code, Forbidden.code
NO_TENANT = "no_tenant"
"""The refusal of a client whose tenant the configuration does not have."""
MOST_TRIALS = 512
"""Numbers to try. An arm with a share below a hundredth may not be among them: it is then taken from the record."""
REMEMBERED = 16_384


class Predicted(NamedTuple):
    """The decision for a request."""

    refused: str = ""
    """The code of the refusal; empty for an admitted request."""
    configured: str = ""
    route: int = -1
    arm: str | None = None
    pools: tuple[str, ...] = ()


class ReplayedDraws(Random):
    """Returns the random numbers of a recorded decision, then numbers that depend on its request alone."""

    def __init__(self) -> None:
        super().__init__(0)
        self.draws: tuple[float, ...] = ()
        self.id = ""
        self._used = 0

    def begin(self, entry: RecordEntry) -> None:
        """Start over, for another request."""
        self.draws, self.id, self._used = entry.draws, entry.id, 0

    def random(self) -> float:
        """The next number in [0, 1)."""
        number = self._used
        self._used += 1
        if number < len(self.draws):
            return self.draws[number]
        drawn = hashlib.blake2b(f"{self.id}\0{number}".encode(), digest_size=8).digest()
        return (int.from_bytes(drawn, "big") >> 11) / 2**53


class RecordedPolicy:
    """Decides recorded requests under one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._policy = Policy.of(config)
        self.rollouts = {
            compared.name: LiveComparison(compared, "", model.name) for model, compared in comparisons_of(config.models)
        }
        for _, compared in comparisons_of(config.models):
            self.rollouts[compared.name].put_shares([arm.weight for arm in compared.split.arms])
        self._first = {name: live.shares for name, live in self.rollouts.items()}
        self.catalogue = Catalogue(config.models, self.rollouts)
        self.prices: Mapping[str, Price] = {m.name: Price(m.price) for m in config.models if m.price is not None}
        self._rng = ReplayedDraws()
        self._pools: dict[int, tuple[str, ...]] = {}
        self._principals: dict[int, Principal] = {}

    def principal(self, holder: Holder) -> Principal:
        """The client, with the rights of the file if the file has its key."""
        written = self._policy.holder(holder.key)
        if written is not None and written.tenant == holder.tenant:
            return written
        scope = None if holder.scope is None else Scope(**holder.scope)
        return Principal(holder.tenant, holder.key, frozenset(holder.roles), holder.labels, scope, holder.team)

    def decide(self, entry: RecordEntry, principal: Principal) -> Predicted:
        """The decision for a request. Limits are not applied."""
        allowed, scope = self._policy.allowed.get(principal.tenant), principal.scope
        if allowed is None:
            return Predicted(NO_TENANT)
        if scope is not None:
            try:
                scope.check_front(entry.operation)
            except Forbidden:
                return Predicted(NOT_IN_SCOPE)
        if not entry.model:
            return Predicted()
        model = self.catalogue.find(entry.model)
        name = entry.model if model is None else model.name or entry.model
        if (
            model is None
            or not (model.name or entry.model.isprintable())
            or not allowed.allows(name)
            or not (scope is None or scope.allows_model(name))
        ):
            return Predicted(NOT_FOUND)
        decision = self._routed(entry, facts_of(entry, principal, model, name), model)
        if decision is None or not (scope is None or scope.allows_route(decision.name)):
            return Predicted(NOT_FOUND)
        return Predicted("", model.rules.model, decision.route, decision.arm, self._pools_of(decision))

    def _routed(self, entry: RecordEntry, facts: Facts, model: ResolvedModel) -> Decision | None:
        for name, live in self.rollouts.items():
            recorded = entry.comparison is not None and entry.comparison[0] == name
            live.put_shares(entry.comparison[1] if recorded and entry.comparison is not None else self._first[name])
        self._rng.begin(entry)
        return model.rules.decide(facts, self._rng)

    def _pools_of(self, decision: Decision) -> tuple[str, ...]:
        pools = self._pools.get(id(decision))
        if pools is None:
            pools = self._pools[id(decision)] = pools_of(decision)
        return pools

    @cached_property
    def read_headers(self) -> frozenset[str]:
        """The headers whose values routes compare, in lower case."""
        return frozenset(
            requirement.field.partition(" ")[2]
            for model in self.config.models
            for route in model.routes
            for requirement in requirements(route.when, self.prices.get(model.name))
            if requirement.field.startswith("header ")
        )

    @cached_property
    def sticky_headers(self) -> frozenset[str]:
        """The headers that only identify a subject, in lower case: a stand-in is enough."""
        written = (msgspec.json.decode(model.model_dump_json()) for model in self.config.models)
        return frozenset(name for model in written for name in _sticky(model)) - self.read_headers

    @cached_property
    def digests(self) -> dict[str, str]:
        """A digest of each part of the configuration that decisions depend on."""
        parts: dict[str, Any] = {}
        for model in self.config.models:
            parts[f"model {model.name}"] = model.model_dump_json()
            parts[f"quotas {model.name}"] = [quota.model_dump_json() for quota in model.limit_list()]
            parts[f"price {model.name}"] = None if model.price is None else model.price.model_dump_json()
        for tenant in self.config.tenants:
            parts[f"tenant {tenant.name}"] = tenant.models
            parts[f"guards {tenant.name}"] = tenant.guards
            parts[f"limits {tenant.name}"] = [limit.model_dump_json() for limit in tenant.limit_list()]
        for guard in self.config.guards:
            parts[f"guard {guard.name}"] = guard.model_dump_json(), _listed(guard)
        return {name: hashlib.blake2b(repr(part).encode(), digest_size=8).hexdigest() for name, part in parts.items()}


def _listed(guard: NamedGuardConfig) -> list[str]:
    """The words of a guard's file, which are not part of the configuration."""
    if not isinstance(guard, WordsGuardConfig) or guard.file is None:
        return []
    try:
        return words_of(guard.file)
    except (OSError, ValueError):  # it has changed since the file was checked
        return []


def pools_of(decision: Decision) -> tuple[str, ...]:
    """The pools of a decision in their order. An arm that is a model stands as `model:NAME`."""
    model = decision.target.model
    return decision.pools if model is None else (f"model:{model}", *decision.pools)


def facts_of(entry: RecordEntry, principal: Principal, model: ResolvedModel, name: str) -> Facts:
    """The facts of a recorded request, as `gateway.request.path_parts.facts_of` made them."""
    features = entry.features

    def uses(feature: Feature) -> bool:
        return bool(features >> FEATURES.index(feature) & 1)

    return Facts(
        principal.tenant,
        principal.key_id,
        name,
        entry.headers,
        entry.stream,
        entry.prompt_tokens,
        entry.user or None,
        entry.id,
        principal.roles,
        principal.labels,
        model.requested or name,
        model.version or entry.version,
        entry.operation,
        entry.max_tokens,
        entry.n,
        entry.decided,
        entry.sequence,
        uses,
    )


def _sticky(value: Any) -> list[str]:
    """The names of all `header:NAME` in a model's section."""
    if isinstance(value, dict):
        own = value.get("sticky")
        names = [own[7:].lower()] if isinstance(own, str) and own.startswith("header:") else []
        return names + [name for inner in value.values() for name in _sticky(inner)]
    return [name for inner in value for name in _sticky(inner)] if isinstance(value, list) else []


class StandIns:
    """The stand-ins of one policy."""

    def __init__(self, policy: RecordedPolicy, key: bytes) -> None:
        self._policy = policy
        self._key = key
        self._numbers: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def place(self, entry: RecordEntry, principal: Principal, made: Predicted) -> bool:
        """Replace the subjects of an entry, which has their plain values. Returns whether its facts then lead to the
        decision that the gateway made."""
        tenant = principal.tenant
        subjects: list[tuple[Callable[[str], None], str]] = []
        if entry.user:
            subjects.append((lambda stand_in: setattr(entry, "user", stand_in), self._digest(tenant, entry.user)))
        if entry.sequence:
            digest = self._digest(tenant, entry.sequence)
            subjects.append((lambda stand_in: setattr(entry, "sequence", stand_in), digest))
        for name in self._policy.sticky_headers & entry.headers.keys():
            digest = self._digest(tenant, entry.headers[name])
            subjects.append((lambda stand_in, name=name: entry.headers.__setitem__(name, stand_in), digest))  # type: ignore[misc]
        same = (tenant, principal.key_id, entry.model, made.route, made.arm, *(digest for _, digest in subjects))
        trials = MOST_TRIALS if subjects and made.arm is not None else 1
        first = self._numbers.get(same, 0)
        for number in (first, *range(trials)):
            for put, digest in subjects:
                put(f"{digest}.{number}")
            if self._policy.decide(entry, principal) == made:
                self._remember(same, number)
                return True
        return False

    def _remember(self, same: tuple[object, ...], number: int) -> None:
        self._numbers[same] = number
        self._numbers.move_to_end(same)
        if len(self._numbers) > REMEMBERED:
            self._numbers.popitem(last=False)

    def _digest(self, tenant: str, value: str) -> str:
        return "~" + keyed_digest(self._key, f"{tenant}\0{value}", 12).hex()


def subject_of(stand_in: str) -> str:
    """The digest of a stand-in without its number, which is the same for all requests of the subject."""
    return stand_in.partition(".")[0]
