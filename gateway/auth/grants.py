"""Checks a new key's role, scopes and labels against the configuration, for the command line and the admin API."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config.problem import closest
from config.schema.config import ClientModelConfig, Config, TenantConfig
from config.schema.identity import GrantConfig
from config.schema.text import may_overlap
from config.schema.units import parse_duration
from config.sentences import sentence
from gateway.auth.errors import WrongGrant
from gateway.auth.keys import end_of_day

LABEL_LENGTH = 100
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LAST_MOMENT = end_of_day("9999-12-31") - 1


def models_of(config: Config, tenant: TenantConfig) -> list[ClientModelConfig]:
    """The models that a tenant may use. For its admins, the others do not exist."""
    return [model for model in config.models if any(may_overlap(glob, model.name) for glob in tenant.models)]


def parse_grant(config: Config, tenant: TenantConfig, written: Mapping[str, Any]) -> GrantConfig:
    """Role, scopes and labels of a key of a tenant. Raises `WrongGrant`."""
    try:
        grant = GrantConfig.model_validate_json(json.dumps(written), strict=True)
    except ValidationError as error:
        raise _wrong(error.errors(include_url=False, include_input=False)[0]) from None
    if grant.scopes is not None:
        usable = models_of(config, tenant)
        models = [model.name for model in usable]
        routes = [route.name for model in usable for route in model.routes if route.name is not None]
        for glob in grant.scopes.models or ():
            if not any(may_overlap(glob, name) for name in models):
                raise WrongGrant("scopes.models", _unknown(f"tenant {tenant.name} has no model", glob, models))
        for name in grant.scopes.routes or ():
            if name not in routes:
                raise WrongGrant("scopes.routes", _unknown(f"tenant {tenant.name} has no route", name, routes))
    return grant


def check_tenant(config: Config, name: str) -> TenantConfig:
    """The tenant of a name. Raises `WrongGrant` for one that the file does not have."""
    tenants = {tenant.name: tenant for tenant in config.tenants}
    if name not in tenants:
        raise WrongGrant("tenant", _unknown("the configuration has no tenant", name, tenants))
    return tenants[name]


def check_label(label: str) -> None:
    """Raises `WrongGrant` for a label that would not fit a line."""
    if len(label) > LABEL_LENGTH or not label.isprintable():
        raise WrongGrant("label", f"at most {LABEL_LENGTH} printable characters on one line")


def parse_end(text: str | None, now: float) -> float | None:
    """Unix seconds of `2027-06-30` (the end of that day, UTC) or of `90d` from now. Raises `WrongGrant`."""
    if text is None:
        return None
    try:
        ends = end_of_day(text) if _DAY.fullmatch(text) else now + parse_duration(text)
    except ValueError:
        reason = f"expected a day such as 2027-06-30 or a duration such as 90d, got {text[:40]!r}"
        raise WrongGrant("expires", reason) from None
    if ends <= now:
        raise WrongGrant("expires", f"{text} has already passed")
    if ends > _LAST_MOMENT:
        raise WrongGrant("expires", f"{text} ends after the year 9999; leave it out for a key without an end")
    return ends


def parse_overlap(text: str, now: float) -> float:
    """Seconds for which a rotated key still works. Raises `WrongGrant`."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise WrongGrant("overlap", str(error)) from None
    if now + seconds > _LAST_MOMENT:
        raise WrongGrant("overlap", f"{text} ends after the year 9999")
    return seconds


def _unknown(problem: str, name: str, names: Iterable[str]) -> str:
    suggestion = closest(name, names)
    return f"{problem} {name[:128]!r}" + (f"; did you mean {suggestion!r}?" if suggestion else "")


def _wrong(details: ErrorDetails) -> WrongGrant:
    field = ".".join(str(step) for step in details["loc"] if step != "[key]")
    if details["type"] == "literal_error":
        return WrongGrant(field, f"expected {details['ctx']['expected']}")
    return WrongGrant(field, "unknown field" if details["type"] == "extra_forbidden" else sentence(details))
