"""The guards of a configuration, compiled, and which of them a request meets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from config.installing import installing
from config.patterns import EngineMissing
from config.schema.config import Config
from config.schema.guards import (
    JudgingGuardConfig,
    NamedGuardConfig,
    PersonalGuardConfig,
    RecogniserConfig,
    Side,
)
from gateway.features.guards.personal import PersonalKeys, restored
from gateway.features.guards.verdicts import SideGuard
from gateway.telemetry.record import Record
from gateway.traffic.fleet.member import FleetError
from policies.guards.compiled import personal_rules_of, rules_of
from policies.guards.masking import Rule, RulesByView, by_view
from policies.guards.personal.masking import PersonalRule
from policies.guards.selection import guards_answers, guards_of
from policies.routing.decision import Decision

if TYPE_CHECKING:
    from gateway.features.guards.judges.base import Judge
    from gateway.features.guards.judges.panel import GuardJudge
    from gateway.features.guards.judges.recognisers import Recogniser
    from gateway.features.guards.recognition import NamedRecogniser

NO_JUDGES: Mapping[Side, tuple[GuardJudge, ...]] = {}


class GuardSet(NamedTuple):
    """The guards of some requests, by the side that they examine. None for a side without a guard."""

    guards: tuple[NamedGuardConfig, ...]
    prompt: RulesByView | None
    answer: RulesByView | None
    judges: Mapping[Side, tuple[GuardJudge, ...]] = NO_JUDGES
    """Those that judge whole texts, by side."""
    personal: tuple[PersonalRule, ...] = ()
    """What finds the values of the prompt that the answer receives again."""
    recognisers: tuple[NamedRecogniser, ...] = ()
    """Servers that find names and places in the prompt."""
    acting: frozenset[Side] = frozenset()
    """The sides on which a guard changes or refuses something."""
    replaces: bool = False
    """Whether a guard may give an answer of its own."""

    def side(self, side: Side, record: Record) -> SideGuard | None:
        """The guards of one side of a request."""
        rules = self.prompt if side == "prompt" else self.answer
        of_prompts = side == "prompt" and (self.personal or self.recognisers)
        if rules is None and not self.judges.get(side) and not of_prompts:
            return None
        return SideGuard(self.guards, rules or (), side, record, acts=side in self.acting)


class GuardTable:
    """All guards of a configuration. Raises `FleetError` for one that cannot be compiled."""

    def __init__(self, config: Config, pepper: Callable[[], bytes]) -> None:
        """`pepper` is called with each request that has personal data."""
        self.config = config
        self.keys = PersonalKeys(pepper)
        self._judges: dict[str, Judge] = {
            guard.name: _judge(guard) for guard in config.guards if isinstance(guard, JudgingGuardConfig)
        }
        self._recognisers: dict[str, Recogniser] = {
            guard.name: _recogniser(guard.recogniser)
            for guard in config.guards
            if isinstance(guard, PersonalGuardConfig) and guard.recogniser is not None
        }
        self._rules = {guard.name: compiled(guard) for guard in config.guards if guard.name not in self._judges}
        self._sets: dict[tuple[str, ...], GuardSet] = {}
        self._by_place: dict[tuple[object, ...], GuardSet | None] = {}
        self._exempting = any(guard.exempt.roles or guard.exempt.keys for guard in config.guards)

    def has(self, decision: Decision) -> bool:
        """Whether requests of a route may meet a guard."""
        tenants = (tenant.name for tenant in self.config.tenants)
        return any(guards_of(self.config, tenant, decision.model, decision.route) for tenant in tenants)

    def restored(self, tenant: str, id_: str, sealed: str, body: bytes) -> bytes:
        """A stored body with the personal data that is sealed in its id. Raises `NotFound`."""
        return restored(self.keys, tenant, id_, sealed, body)

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
            self._sets[names] = self._compiled_set(guards)
        return self._sets[names]

    def _compiled_set(self, guards: tuple[NamedGuardConfig, ...]) -> GuardSet:
        personal = [rule for index, guard in enumerate(guards) for rule in personal_rules_of(guard, index)]
        acting = [guard for guard in guards if guard.acts]
        return GuardSet(
            guards,
            self._side(guards, "prompt"),
            self._side(guards, "answer"),
            self._judges_of(guards),
            tuple(personal),
            self._recognisers_of(guards),
            frozenset(side for guard in acting for side in guard.on),
            any(guard.action == "replace" for guard in acting),
        )

    def _side(self, guards: tuple[NamedGuardConfig, ...], side: Side) -> RulesByView | None:
        rules = [
            Rule(index, rule.finder, rule.masks, rule.view)
            for index, guard in enumerate(guards)
            for rule in (self._rules.get(guard.name, ()) if _examines(guard, side) else ())
        ]
        return by_view(rules) or None

    def _recognisers_of(self, guards: tuple[NamedGuardConfig, ...]) -> tuple[NamedRecogniser, ...]:
        if not self._recognisers:
            return ()
        from gateway.features.guards.recognition import NamedRecogniser

        return tuple(
            NamedRecogniser(index, guard, self._recognisers[guard.name], guard.recogniser.on_error == "pass")
            for index, guard in enumerate(guards)
            if isinstance(guard, PersonalGuardConfig) and guard.recogniser is not None
        )

    def _judges_of(self, guards: tuple[NamedGuardConfig, ...]) -> Mapping[Side, tuple[GuardJudge, ...]]:
        if not self._judges:
            return NO_JUDGES
        from gateway.features.guards.judges.panel import GuardJudge

        judging = [(index, guard) for index, guard in enumerate(guards) if guard.name in self._judges]
        sides: tuple[Side, ...] = ("prompt", "answer")
        return {
            side: tuple(
                GuardJudge(index, guard, self._judges[guard.name]) for index, guard in judging if side in guard.on
            )
            for side in sides
        }


def _judge(guard: JudgingGuardConfig) -> Judge:
    from gateway.features.guards.judges.build import judge_of

    try:
        return judge_of(guard)
    except ModuleNotFoundError as error:
        raise FleetError(f"the guard {guard.name} needs {error.name}: {installing('guards')}") from None
    except ValueError as error:
        raise FleetError(f"the guard {guard.name} cannot be used: {error}") from None


def _recogniser(config: RecogniserConfig) -> Recogniser:
    from gateway.features.guards.judges.recognisers import Recogniser

    return Recogniser(config)


def _examines(guard: NamedGuardConfig, side: Side) -> bool:
    """Whether a guard masks a side for ever. A prompt whose values come back has rules of its own."""
    return side in guard.on and not (side == "prompt" and guard.restores)


def compiled(guard: NamedGuardConfig) -> list[Rule]:
    """The rules of a guard. Raises `FleetError`."""
    try:
        return rules_of(guard, 0)
    except EngineMissing as error:
        raise FleetError(f"the guard {guard.name} needs {error}: {installing('guards')}") from None
    except OSError as error:
        raise FleetError(f"the guard {guard.name} cannot read its file: {error.strerror}") from None
    except ValueError as error:
        raise FleetError(f"the guard {guard.name} cannot be compiled: {error}") from None
