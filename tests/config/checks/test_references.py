import pytest

from tests.config.conftest import RIGHT, Complaints

HASH = "a" * 64


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("to: vllm", "to: vlm", ['10: models[0].routes[0].to: no pool is named "vlm" (did you mean "vllm"?)']),
        (
            "tenants:",
            "    explainer: chta\ntenants:",
            ['12: models[0].explainer: no model is named "chta" (did you mean "chat"?)'],
        ),
        (
            "tenants:",
            "    explainer: chat\ntenants:",
            ["12: models[0].explainer: is this model: an explainer is another model"],
        ),
        (
            "fallback: [spare]",
            "fallback: [spare, zzz]",
            ['11: models[0].routes[0].fallback[1]: no pool is named "zzz"'],
        ),
        (
            "to: vllm",
            "split: {arms: [{pool: vllm, weight: 1}, {pool: spar, weight: 1}]}",
            ['10: models[0].routes[0].split.arms[1].pool: no pool is named "spar" (did you mean "spare"?)'],
        ),
        (
            "models: [chat]",
            "models: [chat, chta]",
            ['14: tenants[0].models[1]: no model is named "chta" (did you mean "chat"?)'],
        ),
        (
            "to: vllm",
            "to: vllm\n        when: {tenant: [acm]}",
            ['11: models[0].routes[0].when.tenant[0]: no tenant is named "acm" (did you mean "acme"?)'],
        ),
        (
            "name: spare",
            "name: vllm",
            [
                "5: pools[1].name: is given twice, first on line 3",
                '11: models[0].routes[0].fallback[0]: no pool is named "spare"',
            ],
        ),
        ("http://10.0.0.6:8000", "http://10.0.0.5:8000", ["4: pools[0].endpoints[1]: is given twice, first on line 4"]),
        (
            "[http://10.0.0.7:8000]",
            "[http://a, {url: 'http://a'}]",
            ["6: pools[1].endpoints[1].url: is given twice, first on line 6"],
        ),
        (
            "fallback: [spare]",
            "fallback: [spare, spare]",
            ["11: models[0].routes[0].fallback[1]: is given twice, first on line 11"],
        ),
        (
            "to: vllm",
            "split: {arms: [{pool: vllm, weight: 1}, {pool: vllm, weight: 2}]}",
            ["10: models[0].routes[0].split.arms[1].pool: is given twice, first on line 10"],
        ),
        (
            "tenants:",
            "tenants:\n  - {name: acme, models: [chat]}",
            ["14: tenants[1].name: is given twice, first on line 13"],
        ),
        (
            "tenants:",
            "  - {name: chat, routes: [{to: vllm}]}\ntenants:",
            ["12: models[1].name: is given twice, first on line 8"],
        ),
        (
            "tenants:",
            f"tenants:\n  - {{name: b, models: [chat], keys: [{{id: k, hash: {HASH}}}, {{id: l, hash: {HASH}}}]}}",
            ["13: tenants[0].keys[1].hash: is given twice, first on line 13"],
        ),
        (
            "tenants:",
            f"tenants:\n  - {{name: b, models: [chat], keys: [{{id: k, hash: {HASH}}}]}}\n"
            f"  - {{name: c, models: [chat], keys: [{{id: k, hash: {'b' * 64}}}]}}",
            ["14: tenants[1].keys[0].id: is given twice, first on line 13"],
        ),
        (
            "tenants:",
            "  - {name: 'c*', routes: [{to: vllm}]}\n  - {name: 'ch*', routes: [{to: vllm}]}\n"
            "tenants:\n  - {name: b, models: ['*']}",
            ['13: models[2].name: can never be reached: "c*" above matches the same names'],
        ),
        (
            "tenants:",
            "  - {name: vision, routes: [{to: vllm, when: {tenant: [acme]}}]}\ntenants:\n  - {name: b, models: ['*']}",
            ["12: models[1].routes[0].when.tenant[0]: no tenant of that name may use this model: see its `models`"],
        ),
    ],
)
def test_names(complaints: Complaints, old: str, new: str, problems: list[str]) -> None:
    old = f"\n{old}" if old == "tenants:" else old  # the section and not a route's field
    new = f"\n{new}" if old.startswith("\n") else new
    assert old in RIGHT
    reported = complaints(RIGHT.replace(old, new, 1))
    assert reported == problems


def test_one_misspelt_name_is_one_problem(complaints: Complaints) -> None:
    assert complaints(RIGHT.replace("name: spare", "nam: spare")) == [
        "5: pools[1].name: is required",
        '5: pools[1].nam: unknown field (did you mean "name"?)',
    ]
    assert complaints(RIGHT.replace("fallback: [spare]", "falback: [spare]")) == [
        '11: models[0].routes[0].falback: unknown field (did you mean "fallback"?)'
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("models: [chat]", "models: ['c*']"),
        ("models: [chat]", "models: ['*', chat]"),
        ("to: vllm", "to: vllm\n        when: {tenant: ['ac*']}"),
    ],
)
def test_globs_with_a_match_are_accepted(complaints: Complaints, old: str, new: str) -> None:
    assert complaints(RIGHT.replace(old, new)) == []


def test_a_glob_for_a_family_and_a_glob_for_a_tenant_may_meet(complaints: Complaints) -> None:
    text = RIGHT.replace("name: chat", "name: 'llama-*'")
    assert complaints(text.replace("models: [chat]", "models: ['llama-*-8b']")) == []
    assert complaints(text.replace("models: [chat]", "models: ['*-8b']")) == []
    assert complaints(text.replace("models: [chat]", "models: [llama-70b]")) == []
    assert len(complaints(text.replace("models: [chat]", "models: [gpt-4]"))) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        fallback: [spare]\n", ""),
        ("\ntenants:", "\n  - {name: vision, routes: [{to: vllm}]}\ntenants:"),
    ],
)
def test_unused_entries_are_accepted(complaints: Complaints, old: str, new: str) -> None:
    assert old in RIGHT
    assert complaints(RIGHT.replace(old, new, 1)) == []
