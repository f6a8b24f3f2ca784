from typing import Any

import pytest

from config.schema.config import MatchConfig, PriceConfig
from policies.facts import Facts, Feature
from policies.limits.price import Price
from policies.routing.conditions import conditions, requirements

PRICE = Price(PriceConfig.model_validate({"prompt": "1 usd/1k", "completion": "2 usd/1k"}))
BASE = Facts("acme", "key-1", "chat", {}, False, 10, None, "req-1", requested="chat")


def matches(when: dict[str, Any], **facts: Any) -> bool:
    compiled = conditions(MatchConfig.model_validate(when), PRICE)
    return all(holds(BASE._replace(**facts)) for holds in compiled)


@pytest.mark.parametrize(
    ("when", "facts", "expected"),
    [
        ({"role": ["operator", "team-*"]}, {"roles": frozenset({"user", "team-a"})}, True),
        ({"role": ["operator"]}, {"roles": frozenset({"user"})}, False),
        ({"role": ["operator"]}, {"roles": frozenset()}, False),
        ({"key": ["key-*"]}, {}, True),
        ({"key": ["jwt:login:*"]}, {"key": "jwt:login:ann@example.org"}, True),
        ({"key": ["ci"]}, {}, False),
        ({"label": {"team": "search*"}}, {"labels": {"team": "search-eu"}}, True),
        ({"label": {"team": "search*"}}, {"labels": {"team": "ads"}}, False),
        ({"label": {"team": "*"}}, {}, False),
        ({"label": {"team": "*", "env": "prod"}}, {"labels": {"team": "", "env": "prod"}}, True),
        ({"model": ["gpt-*"]}, {"requested": "gpt-4o"}, True),
        ({"model": ["gpt-*"]}, {}, False),
        ({"version": ["2"]}, {"version": "2"}, True),
        ({"version": ["*"]}, {"version": ""}, False),
        ({"front": ["text_completion"]}, {"front": "text_completion"}, True),
        ({"front": ["text_completion"]}, {"front": "chat"}, False),
        ({"max_tokens": ">100"}, {"max_tokens": 101}, True),
        ({"max_tokens": ">100"}, {"max_tokens": 100}, False),
        ({"max_tokens": "<=100"}, {"max_tokens": 100}, True),
        ({"max_tokens": "<=100"}, {"max_tokens": None}, False),
        ({"max_tokens": ">100"}, {"max_tokens": None}, False),
        # 10 tokens of prompt are 0.01 usd, 45 of an answer 0.09; without a bound it may be 256.
        ({"cost": ">=0.1 usd"}, {"max_tokens": 45}, True),
        ({"cost": "> 0.1 usd"}, {"max_tokens": 45}, False),
        ({"cost": ">0.1 usd"}, {"max_tokens": 45, "n": 2}, True),
        ({"cost": "<0.5 usd"}, {}, False),
        ({"cost": "<0.53 usd"}, {}, True),
        ({"time": {"between": "09:00-18:00"}}, {"time": 12 * 3600.0}, True),
        ({"time": {"between": "09:00-18:00"}}, {"time": 18 * 3600.0}, False),
    ],
)
def test_each_condition(when: dict[str, Any], facts: dict[str, Any], expected: bool) -> None:
    assert matches(when, **facts) is expected


@pytest.mark.parametrize("feature", ["tools", "json_schema", "vision"])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_features(feature: Feature, required: bool, used: bool) -> None:
    assert matches({feature: required}, uses_feature=lambda name: used and name == feature) is (required is used)


def test_costly_features_are_evaluated_last_and_on_demand() -> None:
    looked: list[Feature] = []
    facts = {"uses_feature": looked.append}
    assert not matches({"vision": True, "tenant": ["other"], "cost": ">100 usd"}, **facts)
    assert matches({"tenant": ["acme"]}, **facts)
    assert not looked
    matches({"vision": True, "tenant": ["acme"]}, **facts)
    assert looked == ["vision"]


def test_a_cost_needs_a_price_in_its_currency() -> None:
    for price in (None, Price(PriceConfig.model_validate({"request": "1 eur"}))):
        with pytest.raises(ValueError, match="usd"):
            conditions(MatchConfig(cost=">1 usd"), price)


def test_every_condition_has_a_name_and_is_shown_as_written() -> None:
    when = {
        "tenant": ["a", "b-*"], "header": {"X-Tier": "gold*"}, "label": {"team": "x"}, "stream": False,
        "prompt_tokens": ">4", "time": {"between": "22:00-06:00", "days": ["fri"], "zone": "Europe/Berlin"},
    }  # fmt: skip
    assert [
        (condition.field, condition.written) for condition in requirements(MatchConfig.model_validate(when), None)
    ] == [
        ("stream", "false"),
        ("prompt_tokens", ">4"),
        ("time", "22:00-06:00 fri Europe/Berlin"),
        ("tenant", "a, b-*"),
        ("label team", "x"),
        ("header x-tier", "gold*"),
    ]
