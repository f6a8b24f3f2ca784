import pytest

from tests.config.conftest import RIGHT, Complaints

TO = "to: vllm"
SPLIT = "split: {arms: [{pool: vllm, weight: 1}, {name: x, weight: 1, split: {arms: ["
NAME = "name: chat"
ROUTES = "routes:\n      - "


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            TO,
            f"when: {{stream: true}}\n        else: true\n        {TO}",
            "10: models[0].routes[0].when: excludes `else`, which takes every request that no other route takes",
        ),
        (
            TO,
            f"{TO}\n        else: true\n      - when: {{stream: true}}\n        {TO}",
            "11: models[0].routes[0].else: must be the last route: no route after it is tried",
        ),
        (TO, f"{TO}\n        else: false", "11: models[0].routes[0].else: expected true, got false"),
        (
            TO,
            f"{TO}\n        when: {{role: [user, operator]}}",
            "11: models[0].routes[0].when.role: has no effect: every principal has the role user",
        ),
        (
            TO,
            f"{TO}\n        when: {{cost: '>1 usd'}}",
            "11: models[0].routes[0].when.cost: needs a price: the model has none",
        ),
        (
            ROUTES,
            f"price: {{request: 1 eur}}\n    {ROUTES}when: {{cost: '>1 usd'}}\n        ",
            "11: models[0].routes[0].when.cost: is in usd and models[0].price.request in eur: a file has one currency",
        ),
        (
            ROUTES,
            f"price: {{request: 1 usd}}\n    {ROUTES}when: {{cost: 1 usd}}\n        ",
            "11: models[0].routes[0].when.cost: expected a comparison such as >0.01 usd",
        ),
        (
            TO,
            f"{TO}\n        when: {{max_tokens: '<0'}}",
            "11: models[0].routes[0].when.max_tokens: no answer is that short",
        ),
        (
            TO,
            f"{TO}\n        when: {{front: [chatt]}}",
            "11: models[0].routes[0].when.front[0]: expected chat or text_completion or embeddings or infer "
            '(did you mean "chat"?)',
        ),
        (
            TO,
            f"{TO}\n        when: {{version: ['1']}}",
            "11: models[0].routes[0].when.version: matches nothing: the model has no `versions`",
        ),
        (
            NAME,
            f"{NAME}\n    versions: ['1', '2']\n    routes: [{{{TO}, when: {{version: ['3']}}}}]\n    routs:",
            "10: models[0].routes[0].when.version[0]: this model has no such version",
        ),
        (
            NAME,
            f"{NAME}\n    aliases: [gpt-4o]\n    routes: [{{{TO}, when: {{model: [gpt-40]}}}}]\n    routs:",
            '10: models[0].routes[0].when.model[0]: this model has no such name (did you mean "gpt-4o"?)',
        ),
        (NAME, f"{NAME}\n    aliases: [chat]", "9: models[0].aliases[0]: is given twice, first on line 8"),
        (NAME, f"{NAME}\n    versions: ['1', '1']", "9: models[0].versions[1]: is given twice, first on line 9"),
        (
            "models: [chat]",
            "models: [chat, 'c@1']",
            "14: tenants[0].models[1]: expected a name or a glob: up to 128 letters, digits, . _ : / - and the "
            "wildcards * ? [ab] [!ab]",
        ),
        (
            TO,
            f"{TO}\n        when: {{time: {{zone: Mars/Olympus, days: [mon]}}}}",
            "11: models[0].routes[0].when.time.zone: expected a time zone that this machine knows, such as "
            "Europe/Berlin or UTC",
        ),
        (
            TO,
            f"{TO}\n        when: {{time: {{between: '9-18'}}}}",
            "11: models[0].routes[0].when.time.between: expected two times of the day such as 09:00-18:00, or "
            "22:00-06:00 for a night",
        ),
        (
            TO,
            f"{TO}\n        when: {{time: {{zone: UTC}}}}",
            "11: models[0].routes[0].when.time: excludes no time: give between, days or both",
        ),
        (
            TO,
            f"{TO}\n        when: {{time: {{between: '09:00-09:00'}}}}",
            "11: models[0].routes[0].when.time: between begins where it ends: leave it out for the whole day",
        ),
        (
            TO,
            f"{TO}\n        when: {{label: {{}}}}",
            "11: models[0].routes[0].when.label: is empty and matches nothing: add an entry, or remove it",
        ),
        (
            TO,
            f"{SPLIT}{{pool: spare, weight: 1}}, {{pool: spar, weight: 1}}]}}}}]}}",
            "10: models[0].routes[0].split.arms[1].split.arms[1].pool: no pool is named "
            '"spar" (did you mean "spare"?)',
        ),
        (
            TO,
            f"{SPLIT}{{pool: spare, weight: 1}}, {{pool: spare, weight: 1}}]}}}}]}}",
            "10: models[0].routes[0].split.arms[1].split.arms[1].pool: is given twice, first on line 10",
        ),
        (
            TO,
            "split: {arms: [{pool: vllm, weight: 1}, {weight: 1, split: {arms: [{pool: vllm, weight: 1}, "
            "{pool: spare, weight: 1}]}}]}",
            "10: models[0].routes[0].split.arms[1]: an arm that is a split needs a name",
        ),
        (
            TO,
            "split: {arms: [{pool: vllm, weight: 1}, {name: x, weight: 1}]}",
            "10: models[0].routes[0].split.arms[1]: has one target: give pool or split",
        ),
        (
            "[spare]",
            "[{pool: spar, on: [context_length]}]",
            '11: models[0].routes[0].fallback[0].pool: no pool is named "spar" (did you mean "spare"?)',
        ),
        (
            "[spare]",
            "[{pool: spare, on: [content_policy]}]",
            "11: models[0].routes[0].fallback[0].on[0]: expected capacity or backend or transport or timeout or "
            "context_length",
        ),
        (
            "[spare]",
            "[{pool: spare, on: [transport, timeout]}]",
            "11: models[0].routes[0].fallback[0].on: lists timeout without effect: transport includes it",
        ),
        (
            "[spare]",
            "[{pool: spare, fallback: [spare]}]",
            '11: models[0].routes[0].fallback[0].fallback[0]: has no effect: "spare" is already a target of the route',
        ),
        (
            "[spare]",
            "[{pool: spare, fallback: [vllm]}]",
            '11: models[0].routes[0].fallback[0].fallback[0]: has no effect: "vllm" is already a target of the route',
        ),
        (
            TO,
            "split: {arms: [{name: a, pool: vllm, weight: 1, fallback: [{pool: spare, fallback: [vllm]}]}, "
            "{pool: spare, weight: 1}]}",
            "10: models[0].routes[0].split.arms[0].fallback[0].fallback[0]: has no effect: "
            '"vllm" is already a target of the route',
        ),
        (
            "[spare]",
            "[spare, {pool: spare, on: [context_length]}]",
            "11: models[0].routes[0].fallback[1].pool: is given twice, first on line 11",
        ),
        (TO, f"{TO}\n        rewrite: {{}}", "11: models[0].routes[0].rewrite: rewrites nothing: give model, "
         "defaults, caps, force or drop"),
        (
            TO,
            f"{TO}\n        rewrite: {{force: {{stream: false}}}}",
            "11: models[0].routes[0].rewrite.force.stream: stream decides the gateway's own routing: it cannot be "
            "rewritten, got false",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{caps: {{temperature: '1'}}}}",
            "11: models[0].routes[0].rewrite.caps.temperature: expected a number",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{caps: {{max_tokens: 1.5}}}}",
            "11: models[0].routes[0].rewrite: max_tokens is a whole number from 1 to 2147483647",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{force: {{n: 200}}}}",
            "11: models[0].routes[0].rewrite: n is a whole number from 1 to 128",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{caps: {{max_tokens: 9}}, force: {{max_completion_tokens: 5}}}}",
            "11: models[0].routes[0].rewrite: max_tokens is given twice: force and caps set the same field",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{caps: {{max_tokens: 9, n_predict: 5}}}}",
            "11: models[0].routes[0].rewrite: max_tokens is given twice: caps and caps set the same field",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{defaults: {{seed: 9}}, drop: [seed]}}",
            "11: models[0].routes[0].rewrite: the default of seed has no effect: another rule sets or removes it",
        ),
        (
            TO,
            f"{TO}\n        rewrite: {{defaults: {{max_tokens: 9}}, caps: {{max_tokens: 5}}}}",
            "11: models[0].routes[0].rewrite: the default of max_tokens is above its cap",
        ),
    ],
)  # fmt: skip
def test_refused(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in RIGHT
    assert problem in complaints(RIGHT.replace(old, new, 1))


def test_a_runtime_of_many_models_needs_a_model(complaints: Complaints) -> None:
    routed = RIGHT.replace(TO, "to: own\n        rewrite: {model: big}").replace("fallback: [spare]", "priority: low")
    for kind, wrong in (("tensor, repository: models", 0), ("llm, model: x", 1)):
        pool = f"pools:\n  - {{name: own, runtime: {{kind: {kind}}}}}"
        reported = complaints(routed.replace("pools:", pool))
        assert len([problem for problem in reported if "its own name" in problem]) == wrong


def test_a_model_s_name_is_rewritten_only_for_pools_without_one(complaints: Complaints) -> None:
    rewriting = RIGHT.replace(TO, f"{TO}\n        rewrite: {{model: big}}")
    assert complaints(rewriting) == []
    named = rewriting.replace("name: vllm", "name: vllm\n    model: a")
    assert complaints(named) == []  # the fallback sends it
    assert complaints(named.replace("name: spare", "name: spare\n    model: b")) == [
        "13: models[0].routes[0].rewrite.model: has no effect: every pool that this route reaches has its own name "
        "for the model"
    ]


@pytest.mark.parametrize("field", ["aliases: [other]", "versions: ['1']"])
def test_a_family_has_no_other_names(complaints: Complaints, field: str) -> None:
    text = RIGHT.replace(NAME, f"name: 'ch*'\n    {field}")
    name = field.partition(":")[0]
    assert complaints(text) == [
        f"9: models[0].{name}: belong to a model with one name: a glob serves each name that clients write"
    ]


def test_an_alias_is_no_second_model(complaints: Complaints) -> None:
    text = RIGHT.replace(NAME, f"{NAME}\n    aliases: [gpt-4o]")
    assert complaints(text) == []
    assert complaints(text.replace("models: [chat]", "models: [gpt-4o]")) == [
        '15: tenants[0].models[0]: "gpt-4o" is an alias, and this list goes by models\' own names '
        '(did you mean "chat"?)'
    ]
    assert complaints(text.replace("\ntenants:", f"\n  - {{name: gpt-4o, routes: [{{{TO}}}]}}\ntenants:")) == [
        "13: models[1].name: is given twice, first on line 9"
    ]


def test_a_fallback_that_leads_back_to_itself_is_refused(complaints: Complaints) -> None:
    """Targets hold what they lead to, so the only cycle is an anchor that holds its own alias."""
    loop = "fallback: &loop [{pool: spare, fallback: *loop}]"
    (problem,) = complaints(RIGHT.replace("fallback: [spare]", loop))
    assert problem.startswith("11:")
    assert "the aliases expand to too much data" in problem or "recursive" in problem


@pytest.mark.parametrize(
    "route",
    [
        "{when: {role: [operator], key: ['jwt:*'], label: {team: search}, front: [chat], max_tokens: '<=64', "
        "tools: true, json_schema: false, vision: true}, to: vllm}",
        "{when: {time: {between: 22:00-06:00, days: [mon, fri], zone: Europe/Berlin}}, to: vllm}",
        "{else: true, split: {arms: [{name: a, pool: vllm, weight: 1}, {name: b, pool: spare, weight: 1}]}}",
        "{to: vllm, fallback: [{split: {arms: [{pool: spare, weight: 1}, {pool: vllm, weight: 1}]}}]}",
        "{to: vllm, rewrite: {defaults: {temperature: 0.1, stop: [a]}, caps: {max_tokens: 10, n: 2}, "
        "force: {logprobs: null}, drop: [logit_bias]}}",
    ],
)
def test_accepted(complaints: Complaints, route: str) -> None:
    before, _, after = RIGHT.partition("      - to: vllm\n        fallback: [spare]\n")
    assert complaints(f"{before}      - {route}\n{after}") == []
