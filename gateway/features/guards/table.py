"""The guards of a configuration, compiled, and which of them a request meets."""

from collections.abc import Collection
from typing import NamedTuple

from config.installing import installing
from config.patterns import EngineMissing
from config.schema.config import Config
from config.schema.guards import NamedGuardConfig, Side
from gateway.features.guards.verdicts import SideGuard
from gateway.telemetry.record import Record
from gateway.traffic.fleet.member import FleetError
from policies.guards.compiled import rules_of
from policies.guards.masking import Rule, RulesByView, by_view
from policies.guards.selection import guards_answers, guards_of
from policies.routing.decision import Decision


class GuardSet(NamedTuple):
    """The guards of some requests, by the side that they examine. None for a side without a guard."""

    guards: tuple[NamedGuardConfig, ...]
    prompt: RulesByView | None
    answer: RulesByView | None

    def side(self, side: Side, record: Record) -> SideGuard | None:
        """The guards of one side of a request."""
        rules = self.prompt if side == "prompt" else self.answer
        if rules is None:
            return None
        acts = any(guard.acts and side in guard.on for guard in self.guards)
        return SideGuard(self.guards, rules, side, record, acts=acts)


class GuardTable:
    """All guards of a configuration. Raises `FleetError` for one that cannot be compiled."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._rules = {guard.name: _compiled(guard) for guard in config.guards}
        self._sets: dict[tuple[str, ...], GuardSet] = {}
        self._by_place: dict[tuple[object, ...], GuardSet | None] = {}
        self._exempting = any(guard.exempt.roles or guard.exempt.keys for guard in config.guards)

    def has(self, decision: Decision) -> bool:
        """Whether requests of a route may meet a guard."""
        tenants = (tenant.name for tenant in self.config.tenants)
        return any(guards_of(self.config, tenant, decision.model, decision.route) for tenant in tenants)

    def guards_answers(self, tenant: str, model: str) -> bool:
        """Whether a guard may change or refuse an answer of the model to the tenant."""
        return guards_answers(self.config, tenant, model)

    def find(self, decision: Decision, tenant: str, roles: Collection[str], key: str) -> GuardSet | None:
        """The guards of a request; None for none."""
        if self._exempting:
            guards = guards_of(self.config, tenant, decision.model, decision.route, roles, key)
            return self._set(guards) if guards else None
        place = tenant, decision.model, decision.route
        if place not in self._by_place:  # bounded by the file: tenants, models and routes
            guards = guards_of(self.config, *place)
            self._by_place[place] = self._set(guards) if guards else None
        return self._by_place[place]

    def _set(self, guards: tuple[NamedGuardConfig, ...]) -> GuardSet:
        names = tuple(guard.name for guard in guards)
        if names not in self._sets:
            self._sets[names] = GuardSet(guards, self._side(guards, "prompt"), self._side(guards, "answer"))
        return self._sets[names]

    def _side(self, guards: tuple[NamedGuardConfig, ...], side: Side) -> RulesByView | None:
        rules = [
            Rule(index, rule.finder, rule.masks, rule.view)
            for index, guard in enumerate(guards)
            for rule in (self._rules[guard.name] if side in guard.on else ())
        ]
        return by_view(rules) or None


def _compiled(guard: NamedGuardConfig) -> list[Rule]:
    try:
        return rules_of(guard, 0)
    except EngineMissing as error:
        raise FleetError(f"the guard {guard.name} needs {error}: {installing('guards')}") from None
    except OSError as error:
        raise FleetError(f"the guard {guard.name} cannot read its file: {error.strerror}") from None
    except ValueError as error:
        raise FleetError(f"the guard {guard.name} cannot be compiled: {error}") from None
