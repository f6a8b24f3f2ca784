from collections import Counter
from fnmatch import fnmatchcase
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import ClientModelConfig, MatchConfig
from policies.facts import Facts
from policies.routing.rules import Catalogue, ModelList, Rules
from policies.routing.rules import names as names_of
from tests.support.route_conditions import conditions, facts, requests

RNG = Random(1)


def rules(*routes: dict[str, Any], name: str = "chat") -> Rules:
    return Rules(ClientModelConfig.model_validate({"name": name, "routes": routes}))


def route_of(compiled: Rules, request_facts: Facts) -> int | None:
    decision = compiled.decide(request_facts, RNG)
    return None if decision is None else decision.route


def naive_match(when: MatchConfig, request_facts: Facts) -> bool:
    """The specification, straight from the words of the schema."""
    lower = {name.lower(): pattern for name, pattern in (when.header or {}).items()}
    return all(
        (
            when.stream is None or request_facts.stream == when.stream,
            when.tenant is None or any(fnmatchcase(request_facts.tenant, p) for p in when.tenant),
            when.model is None or any(fnmatchcase(request_facts.model, p) for p in when.model),
            all(n in request_facts.headers and fnmatchcase(request_facts.headers[n], p) for n, p in lower.items()),
            when.prompt_tokens is None or eval(f"{request_facts.prompt_tokens} {when.prompt_tokens}"),
        )
    )


@given(st.lists(conditions, min_size=1, max_size=5), st.lists(requests, min_size=1, max_size=5))
def test_the_first_route_that_matches_wins(whens: list[MatchConfig], all_facts: list[Facts]) -> None:
    unreachable = MatchConfig()
    whens = [when for when in whens if when != unreachable] + [MatchConfig(stream=True)]
    compiled = rules(*({"when": when, "to": f"p{i}"} for i, when in enumerate(whens)))
    for one in all_facts:
        expected = next((i for i, when in enumerate(whens) if naive_match(when, one)), None)
        assert route_of(compiled, one) == expected


def test_a_header_matches_in_any_case_and_must_be_present() -> None:
    compiled = rules({"when": {"header": {"X-Tier": "gold*"}}, "to": "fast"})
    assert route_of(compiled, facts(headers={"x-tier": "gold-1"})) == 0
    assert route_of(compiled, facts(headers={"x-tier": "silver"})) is None
    assert route_of(compiled, facts()) is None
    anything = rules({"when": {"header": {"X-Tier": "*"}}, "to": "fast"})
    assert route_of(anything, facts(headers={"x-tier": ""})) == 0
    assert route_of(anything, facts()) is None


@pytest.mark.parametrize(
    ("comparison", "matching"),
    [("<10", {9}), ("<=10", {9, 10}), (">10", {11}), (">= 10", {10, 11})],
)
def test_prompt_tokens_compares(comparison: str, matching: set[int]) -> None:
    compiled = rules({"when": {"prompt_tokens": comparison}, "to": "p"})
    assert {n for n in (9, 10, 11) if route_of(compiled, facts(prompt_tokens=n)) == 0} == matching


def test_a_decision_carries_the_route_and_is_built_once() -> None:
    compiled = rules(
        {"to": "main", "fallback": ["spare", "last"], "retry": {"attempts": 4}, "timeout": {"total": "5s"}}
    )
    decision = compiled.decide(facts(), RNG)
    assert decision is not None
    assert decision.pools == ("main", "spare", "last")
    assert decision.arm is None
    assert decision.retry.attempts == 4
    assert decision.timeout.total == 5.0
    assert compiled.decide(facts(tenant="other"), RNG) is decision


def split_route(a: float, b: float, **more: Any) -> dict[str, Any]:
    arms = [{"pool": "a", "weight": a}, {"pool": "b", "weight": b}]
    return {"split": {"sticky": "user", "arms": arms}, **more}


def test_a_split_puts_the_chosen_pool_first_and_repeats_none() -> None:
    compiled = rules(split_route(1, 1, fallback=["b", "c"]))
    seen = {compiled.decide(facts(user=f"u{i}"), RNG) for i in range(50)}
    assert {(d.arm, d.pools) for d in seen if d} == {("a", ("a", "b", "c")), ("b", ("b", "c"))}


def test_an_arm_of_weight_0_gets_nothing_until_it_is_raised() -> None:
    compiled = rules(split_route(1, 0))
    assert {d.arm for i in range(200) if (d := compiled.decide(facts(user=f"u{i}"), RNG))} == {"a"}


def arms_of(compiled: Rules, users: int = 400) -> list[str | None]:
    decisions = (compiled.decide(facts(user=f"u{i}"), RNG) for i in range(users))
    return [decision.arm if decision else None for decision in decisions]


def test_a_route_put_above_a_split_and_a_new_condition_move_no_user() -> None:
    before = arms_of(rules(split_route(1, 1)))
    gold = {"when": {"tenant": ["gold"]}, "to": "a"}
    assert arms_of(rules(gold, split_route(1, 1))) == before
    assert arms_of(rules(split_route(1, 1, when={"tenant": ["ac*"]}))) == before


def test_splits_of_two_models_and_of_two_routes_are_independent() -> None:
    one = arms_of(rules(split_route(1, 1)), 2000)
    other_model = arms_of(rules(split_route(1, 1), name="chat-2"), 2000)
    other_route = arms_of(rules(split_route(1, 1, when={"tenant": ["gold"]}), split_route(1, 1)), 2000)
    for other in (other_model, other_route):
        assert 0.45 < sum(a == b for a, b in zip(one, other, strict=True)) / 2000 < 0.55


def model(name: str, pool: str) -> ClientModelConfig:
    return ClientModelConfig.model_validate({"name": name, "routes": [{"to": pool}]})


def test_the_catalogue_prefers_the_exact_name_then_the_first_glob() -> None:
    catalogue = Catalogue([model("v-*", "wide"), model("v-1*", "narrow"), model("v-1", "exact")])

    def pool_of(name: str) -> str | None:
        entry = catalogue.find(name)
        decision = entry.rules.decide(facts(model=name), RNG) if entry else None
        return decision.pools[0] if decision else None

    assert pool_of("v-1") == "exact"
    assert pool_of("v-12") == "wide"
    assert pool_of("w-1") is None


def test_a_model_list_allows_names_and_families() -> None:
    allowed = ModelList(["chat", "vision-*"])
    assert allowed.allows("chat")
    assert allowed.allows("vision-7b")
    assert "vision-7b" in allowed
    assert not allowed.allows("chat-2")
    assert not ModelList([]).allows("chat")
    assert ModelList(["*"]).allows("anything")


def test_an_arm_may_be_a_split_of_its_own() -> None:
    inner = {"sticky": "user", "arms": [{"pool": "b", "weight": 1}, {"name": "eu", "pool": "c", "weight": 1}]}
    arms = [{"pool": "a", "weight": 2}, {"name": "new", "weight": 2, "split": inner, "fallback": ["a"]}]
    compiled = rules({"split": {"sticky": "user", "arms": arms}, "fallback": ["d"]})
    seen = {(d.arm, d.pools) for i in range(100) if (d := compiled.decide(facts(user=f"u{i}"), RNG))}
    assert seen == {
        ("a", ("a", "d")),
        ("new>b", ("b", "a", "d")),
        ("new>eu", ("c", "a", "d")),
    }


def test_a_split_in_a_split_places_its_subjects_anew() -> None:
    """Under one hash for both, all subjects of the outer arm would be in the same inner arm."""
    inner = {"sticky": "user", "arms": [{"pool": "b", "weight": 1}, {"pool": "c", "weight": 1}]}
    arms = [{"pool": "a", "weight": 1}, {"name": "new", "weight": 1, "split": inner}]
    counts = Counter(arms_of(rules({"split": {"sticky": "user", "arms": arms}}), 2000))
    assert counts["a"] == pytest.approx(1000, abs=120)
    assert counts["new>b"] == pytest.approx(500, abs=100)


def test_fallbacks_have_their_failures_and_skip_tried_pools() -> None:
    fallback = ["b", {"pool": "long", "on": ["context_length"]}, {"pool": "c", "fallback": ["d"]}]
    compiled = rules(split_route(1, 1, fallback=fallback))
    plans = {d.arm: d for i in range(50) if (d := compiled.decide(facts(user=f"u{i}"), RNG))}
    usual = {"capacity", "backend", "transport"}
    steps = [(set(step.on), tuple(step.target.pools())) for step in plans["a"].target.fallback]
    assert steps == [(usual, ("b",)), ({"context_length"}, ("long",)), (usual, ("c", "d"))]
    assert plans["b"].pools == ("b", "long", "c", "d")


def test_else_takes_the_rest() -> None:
    compiled = rules({"when": {"stream": True}, "to": "a"}, {"else": True, "to": "b"})
    assert route_of(compiled, facts(stream=True)) == 0
    assert route_of(compiled, facts()) == 1


def test_a_model_has_all_of_its_names() -> None:
    named = {"name": "chat", "aliases": ["gpt-4o"], "versions": ["1", "2"], "routes": [{"to": "a"}]}
    catalogue = Catalogue([ClientModelConfig.model_validate(named), model("gpt-*", "family")])
    assert {name: catalogue.find(name) for name, _, _ in names_of(ClientModelConfig.model_validate(named))}.keys() == {
        "chat", "chat@1", "chat@2", "gpt-4o", "gpt-4o@1", "gpt-4o@2",
    }  # fmt: skip
    entry = catalogue.find("gpt-4o@2")
    assert entry is not None
    assert (entry.name, entry.requested, entry.version, entry.rules.model) == ("chat", "gpt-4o", "2", "chat")
    family = catalogue.find("gpt-4@2")
    assert family is not None
    assert (family.name, family.rules.model) == ("", "gpt-*")
    assert catalogue.find("chat@3") is None
    assert catalogue.find("chat@") is None
