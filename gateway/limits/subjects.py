"""The allowances of one limit: one for the tenant, or one for each team, key, model or end user."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from config.schema.limits import LimitsConfig, Per
from gateway.limits.allowance import Allowance
from gateway.limits.drawn import DrawTotals
from policies.facts import Facts
from policies.globs import GlobSet

Spare = Callable[[], Allowance]
"""Returns the allowance that new subjects share."""
Store = Callable[[str, str, LimitsConfig, Spare | None, float, float], Allowance | None]
"""Creates the allowance of a scope's subject; None without room if it has a `Spare`. Takes the time of both clocks."""
MAX_SUBJECTS = 10_000
SCANNED = 8
WHOLE = "tenant"
"""The subject of a limit for the whole tenant."""
_OTHERS = "others"


def in_memory(scope: str, subject: str, config: LimitsConfig, spare: Spare | None, now: float, utc: float) -> Allowance:
    """A store of allowances of one process, which needs no names."""
    return Allowance(config, now, utc)


class Limit:
    """One limit of a tenant, and its allowances. Survives reloads.

    At most `MAX_SUBJECTS` are stored, since a client can invent users. Evicting a subject with a debt would forgive the
    debt, so only an idle one (nothing in flight, every bucket full, nothing spent in the window) is evicted, from the
    least recently used ones. If there is none, new subjects share one additional allowance.
    """

    __slots__ = ("_allowances", "_drawn", "_max", "_owner", "_scope", "_store", "config", "models", "subject_of")

    def __init__(
        self,
        config: LimitsConfig,
        store: Store = in_memory,
        scope: str = "",
        max_subjects: int = MAX_SUBJECTS,
        *,
        owner: str = "",
        drawn: DrawTotals | None = None,
    ) -> None:
        """`owner` is the account in `drawn`: what the database has of limits of long periods."""
        self._owner = owner
        self._drawn = drawn
        self.config = config
        self._store = store
        self._scope = scope
        self.models = None if config.models is None else GlobSet(config.models)
        """The models whose requests count; None for all."""
        self.subject_of = _SUBJECTS[config.per]
        """Returns the subject of a request with these facts for the configured model."""
        self._max = max_subjects
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._allowances)

    def __iter__(self) -> Iterator[Allowance]:
        return iter(self._allowances.values())

    def configure(self, config: LimitsConfig, now: float, utc: float) -> None:
        """Apply new amounts for the same scope."""
        self.config = config
        for allowance in self._allowances.values():
            allowance.configure(config, now, utc)
        self._join(self._allowances.items(), now, utc)

    def leave(self) -> None:
        """Forget all allowances: the limit is removed."""
        if self._drawn is not None:
            for allowance in self._allowances.values():
                self._drawn.leave(allowance)

    def _join(self, allowances: Iterable[tuple[str, Allowance]], now: float, utc: float) -> None:
        """Begin with what is recorded."""
        if self._drawn is not None:
            for subject, allowance in allowances:
                self._drawn.join(allowance, self._owner, subject, now, utc)

    @property
    def is_for_all(self) -> bool:
        """Whether every request of the tenant uses one allowance."""
        return self.config.per == "tenant" and self.models is None

    @property
    def is_for_each_request(self) -> bool:
        """Whether tenant and key alone determine the allowance of a request."""
        return self.config.per in ("tenant", "team", "key") and self.models is None

    def of_key(self, key: str, team: str, now: float, utc: float) -> Allowance:
        """The allowance of the tenant, of one team, or of one key."""
        subjects = {"tenant": WHOLE, "team": f"team:{team}"}
        return self.of(subjects.get(self.config.per, f"key:{key}"), now, utc)

    def of(self, subject: str, now: float, utc: float) -> Allowance:
        """The allowance of a subject."""
        allowance = self._allowances.get(subject)
        if allowance is None:
            return self._newcomer(subject, now, utc)
        self._allowances.move_to_end(subject)
        return allowance

    def _newcomer(self, subject: str, now: float, utc: float) -> Allowance:
        if len(self._allowances) >= self._max and not self._made_room(now, utc):
            return self._others(now, utc)
        spare = None if self.config.per in ("tenant", "model") else partial(self._others, now, utc)
        allowance = self._store(self._scope, subject, self.config, spare, now, utc)
        if allowance is None:
            return self._others(now, utc)
        allowance.subject = subject
        self._allowances[subject] = allowance
        self._join([(subject, allowance)], now, utc)
        return allowance

    def _others(self, now: float, utc: float) -> Allowance:
        allowance = self._allowances.get(_OTHERS)
        if allowance is None:
            allowance = self._store(self._scope, _OTHERS, self.config, None, now, utc)
            assert allowance is not None
            allowance.subject = _OTHERS
            self._allowances[_OTHERS] = allowance
            self._join([(_OTHERS, allowance)], now, utc)
        return allowance

    def _made_room(self, now: float, utc: float) -> bool:
        """Examines a few subjects only; those in use move to the end, so that the next search examines others."""
        for name in list(islice(self._allowances, SCANNED)):
            if name != _OTHERS and self._allowances[name].is_idle(now, utc):
                gone = self._allowances.pop(name)
                if self._drawn is not None:
                    self._drawn.leave(gone)
                return True
            self._allowances.move_to_end(name)
        return False


def recorded_subject(per: Per, usage: Mapping[str, Any]) -> str:
    """The subject of recorded usage by its labels, as that of its requests; empty if they do not determine it: usage
    without a user may be of a time when users were not counted."""
    if per == "tenant":
        return WHOLE
    return "" if per == "user" and not usage["user"] else f"{per}:{usage[per]}"


def _user(facts: Facts, model: str) -> str:
    """A request without a user counts for its key, so that omitting the user evades no limit."""
    return f"user:{user}" if (user := facts.end_user) else f"key:{facts.subject}"


_SUBJECTS: dict[Per, Callable[[Facts, str], str]] = {
    "tenant": lambda facts, model: WHOLE,
    "team": lambda facts, model: f"team:{facts.team}",
    "model": lambda facts, model: f"model:{model}",
    "key": lambda facts, model: f"key:{facts.subject}",
    "user": _user,
}
"""By `per`: the subject of a request. Prefixes prevent a user from using a key's name."""
