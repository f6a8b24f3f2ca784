"""An explanation equals the decision, for every policy and request."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schema.config import ClientModelConfig, Config, MatchConfig
from policies.facts import Facts
from policies.routing.explain import limits_of, quotas_of, routes_of, settings_of, sides_of
from policies.routing.rules import Rules
from tests.support.route_conditions import conditions, requests

POOLS = ("a", "b", "c", "d")
pools = st.sampled_from(POOLS)
plain = st.fixed_dictionaries({"pool": pools})


def splits(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arms = st.lists(st.tuples(inner, st.integers(1, 9)), min_size=2, max_size=3)
    sticky = st.sampled_from(["user", "key", "tenant", "header:x-a", "request"])
    return st.builds(
        lambda sides, sticky: {
            "split": {
                "sticky": sticky,
                "arms": [{**side, "name": f"arm{i}", "weight": weight} for i, (side, weight) in enumerate(sides)],
            }
        },
        arms,
        sticky,
    )


def with_fallback(target: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    steps = st.lists(pools | st.fixed_dictionaries({"pool": pools, "on": st.just(["context_length"])}), max_size=2)
    return st.builds(lambda one, steps: {**one, "fallback": steps}, target, steps)


targets = st.recursive(plain, lambda inner: splits(inner) | with_fallback(inner), max_leaves=4)


def config(routes: list[dict[str, Any]], **more: Any) -> Config:
    return Config.model_validate(
        {
            "version": 1,
            "pools": [{"name": name, "endpoints": ["http://a"]} for name in POOLS],
            "models": [{"name": "chat", "routes": routes}],
            "tenants": [{"name": "acme", "models": ["*"], **more}],
        }
    )


def route(target: dict[str, Any], when: MatchConfig) -> dict[str, Any]:
    led = {("to" if name == "pool" else name): value for name, value in target.items()}
    return {**led, "when": when.model_dump(exclude_none=True)}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(targets, conditions), min_size=1, max_size=4), requests, st.integers(0, 2**32))
def test_an_explanation_matches_the_decision(
    routes: list[tuple[dict[str, Any], MatchConfig]], facts: Facts, seed: int
) -> None:
    made = config([route(target, when) for target, when in routes])
    decision = Rules(made.models[0]).decide(facts, Random(seed))
    looked_at = list(routes_of(made, 0, facts))
    assert [one.matches for one in looked_at[:-1]] == [False] * (len(looked_at) - 1)
    for one in looked_at:
        assert one.matches is all(check.holds for check in one.checks)
    if decision is None:
        assert not looked_at[-1].matches
        return
    assert (looked_at[-1].route, looked_at[-1].matches) == (decision.route, True)
    to, arms = sides_of(made.models[0], decision.route, facts)
    if arms:
        assert sum(side.share for side in arms) == pytest.approx(1.0)
    ways = [to] if to is not None else [side for side in arms if side.share > 0]
    assert (decision.arm, decision.pools) in [(side.arm, side.pools) for side in ways]


def test_each_field_is_shown_as_the_request_has_it() -> None:
    when = {
        "tenant": ["x"], "role": ["x"], "key": ["x"], "label": {"team": "x"}, "model": ["x"], "version": ["x"],
        "front": ["chat"], "header": {"X-A": "x"}, "stream": True, "prompt_tokens": ">9", "max_tokens": ">9",
        "tools": True, "json_schema": True, "vision": True, "cost": ">1 usd", "time": {"between": "09:00-18:00"},
    }  # fmt: skip
    made = config([{"when": when, "to": "a"}])
    priced = made.model_copy(
        update={
            "models": (
                made.models[0].model_validate(
                    {"name": "chat", "price": {"request": "0.5 usd"}, "routes": [{"when": when, "to": "a"}]}
                ),
            )
        }
    )
    facts = Facts(
        "acme", "k1", "chat", {"x-a": "y" * 200}, False, 7, None, "r", frozenset({"user", "dev"}), requested="gpt"
    )
    (route_explained,) = routes_of(priced, 0, facts)
    assert {check.field: check.seen for check in route_explained.checks} == {
        "stream": "false", "prompt_tokens": "7", "max_tokens": "none", "time": "Thu 00:00", "tenant": "acme",
        "key": "k1", "model": "gpt", "version": "none", "front": "chat", "role": "dev, user", "label team": "none",
        "header x-a": "y" * 128, "cost": "0.5 usd", "tools": "false", "json_schema": "false", "vision": "false",
    }  # fmt: skip


def test_a_split_with_an_unknown_subject_is_shown_by_shares() -> None:
    arms = [{"pool": "a", "weight": 3}, {"pool": "b", "weight": 1}, {"pool": "c", "weight": 0}]
    made = config([{"split": {"sticky": "user", "arms": arms}}])
    unknown = Facts("acme", "", "chat", {}, False, 7, None, "r")
    to, sides = sides_of(made.models[0], 0, unknown)
    assert to is None
    assert [(side.arm, side.share) for side in sides] == [("a", 0.75), ("b", 0.25), ("c", 0.0)]
    identified, _ = sides_of(made.models[0], 0, unknown._replace(user="ann"))
    assert identified is not None
    assert identified.pool in ("a", "b")


def test_limits_are_those_that_cover_the_model() -> None:
    made = config(
        [{"to": "a"}],
        limits=[{"requests": "10/s"}, {"spend": "5 usd/day", "per": "user", "models": ["other-*"]}],
    )
    tenant = made.tenants[0]
    assert limits_of(tenant, "chat") == ({"requests": "10/s", "per": "tenant", "enforce": "always"},)
    assert len(limits_of(tenant, "other-1")) == 2
    assert limits_of(config([{"to": "a"}]).tenants[0], "chat") == ()


def test_settings_are_the_fields_of_a_route_beside_its_target() -> None:
    settings = settings_of(
        config([{"to": "a", "retry": {"attempts": 3}, "timeout": {"total": "5s"}}]).models[0].routes[0]
    )
    assert settings["retry"]["attempts"] == 3
    assert settings["timeout"]["total"] == "5s"
    assert not {"to", "when", "split", "fallback", "else"} & settings.keys()


def test_limits_of_a_model_are_shown_with_their_counter() -> None:
    model = ClientModelConfig.model_validate(
        {"name": "chat", "routes": [{"to": "a"}], "limits": [{"concurrency": 5}, {"rows": "5/s", "count": "leased"}]}
    )
    first, second = quotas_of(model)
    assert first == {"concurrency": 5, "per": "everybody", "enforce": "always"}
    assert second["count"] == "leased"
    assert second["on_redis_failure"] == "allow"
