"""Limits that would do nothing, and money that cannot be added up."""

import pytest

from tests.config.conftest import RIGHT, Complaints

UNITS = "requests, tokens, rows, bytes, device_ms, spend, concurrency"
PRICED = RIGHT.replace("- name: chat", "- name: chat\n    price: {prompt: 1 usd/1M, completion: 2 usd/1M}")


@pytest.mark.parametrize(
    "limits",
    [
        "limits: {requests: 5/s, spend: 5 usd/day}",
        "limits: {}",
        "limits: {tokens: 1M/month, per: key, enforce: shadow}",
        "limits:\n      - {requests: 5/s}\n      - {requests: 100/h}",
        "limits:\n      - {requests: 5/s}\n      - {requests: 4/s, enforce: shadow}",
        "limits:\n      - {spend: 5 usd/day}\n      - {spend: 9 usd/month, per: user, models: [chat]}",
    ],
)
def test_limits_that_are_accepted(complaints: Complaints, limits: str) -> None:
    assert complaints(f"{PRICED}    {limits}\n") == []


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (
            "limits: {spend: 5 usd/week}",
            "limits.spend: expected a budget such as 2 usd/hour, 5 usd/day or 50 usd/month",
        ),
        ("limits: {request: 5/s}", 'limits.request: unknown field (did you mean "requests"?)'),
        ("limits: [{request: 5/s}]", 'limits[0].request: unknown field (did you mean "requests"?)'),
        ("limits: {per: keys, requests: 5/s}", "limits.per: expected tenant or team or key or model or user"),
        (
            "limits: {per: key}",
            f"limits: limits nothing: give one of {UNITS}",
        ),
        (
            "limits: [{}]",
            f"limits[0]: limits nothing: give one of {UNITS}",
        ),
        (
            "limits: {requests: 5/s, models: []}",
            "limits.models: is empty and matches nothing: add an entry, or remove it",
        ),
        (
            "limits: {requests: 5/s, models: [big]}",
            "limits.models[0]: has no effect: this tenant may use no such model",
        ),
        (
            "limits: {spend: 5 eur/day}",
            "limits.spend: is in eur and models[0].price.prompt in usd: a file has one currency",
        ),
        (
            "limits: [{requests: 5/s}, {requests: 6/s}]",
            "limits[1].requests: is limited already, by tenants[0].limits[0].requests: keep one",
        ),
        (
            "limits: [{requests: 5/s, enforce: shadow}, {requests: 5/s}]",
            "limits[0].requests: shows nothing: tenants[0].limits[1].requests refuses the same or sooner",
        ),
    ],
)
def test_limits_that_are_refused(complaints: Complaints, limits: str, problem: str) -> None:
    (line,) = complaints(f"{PRICED}    {limits}\n")
    assert line.startswith("16: tenants[0].")
    assert problem in line


@pytest.mark.parametrize(
    ("teams", "problem"),
    [
        (
            "limits: {requests: 5/s}, teams: [{name: a, limits: {requests: 6/s}}]",
            "teams[0].limits.requests: has no effect: tenants[0].limits.requests refuses sooner",
        ),
        ("teams: [{name: a, limits: {spend: 5 eur/day}}]", "is in eur and"),
        ("teams: [{name: a, limits: {requests: 5/s, per: tenant}}]", "expected team or key or model or user"),
        ("teams: [{name: a, limits: [{}]}]", "teams[0].limits[0]: limits nothing"),
        ("teams: [{name: a}, {name: a}]", "teams[1].name: is given twice"),
        (f"teams: [{{name: ads}}], keys: [{{id: {'a' * 12}, hash: '{'0' * 64}', team: adds}}]",
         'no team of this tenant is named "adds" (did you mean "ads"?)'),
    ],
)  # fmt: skip
def test_teams_that_are_refused(complaints: Complaints, teams: str, problem: str) -> None:
    fields = teams.replace(", teams:", "\n    teams:").replace(", keys:", "\n    keys:")
    (line,) = complaints(f"{PRICED.rstrip()}\n    {fields}\n")
    assert problem in line


HOOK = "webhooks: [{name: hook, url: 'https://hooks.example.com', secret: '${HOOK_SECRET}'}]"


@pytest.mark.parametrize(
    ("soft", "top", "problem"),
    [
        ("{spend: 5 usd/day, webhook: hok}", f"usage: {{}}\n{HOOK}", 'no webhook is named "hok" (did you'),
        ("{spend: 5 usd/day, webhook: hook}", HOOK, "has no effect without `usage`"),
        ("{spend: 5 eur/day, webhook: hook}", f"usage: {{}}\n{HOOK}", "is in eur and"),
        ("{spend: 5 usd/day, webhook: hook, at: [80%, 80%]}", f"usage: {{}}\n{HOOK}", "each share is listed once"),
        ("{spend: 5 usd/day, webhook: hook}", f"usage: {{}}\n{HOOK.replace('https', 'http')}", "is not encrypted"),
        ("{spend: 5 usd/day, webhook: hook}", f"usage: {{}}\n{HOOK.replace('hooks.example.com', '10.0.0.7')}",
         "is a private address"),
        ("{spend: 5 usd/day, webhook: hook}", f"usage: {{}}\n{HOOK.replace('hooks.example.com', 'localhost:8443')}",
         "is a private address"),
    ],
)  # fmt: skip
def test_soft_budgets_that_are_refused(
    complaints: Complaints, monkeypatch: pytest.MonkeyPatch, soft: str, top: str, problem: str
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s" * 32)
    lines = complaints(f"{PRICED}    soft_budgets: [{soft}]\n{top}\n")
    assert any(problem in line for line in lines), lines


def test_a_webhook_without_use_is_refused(complaints: Complaints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s" * 32)
    (line,) = complaints(f"{PRICED}{HOOK}\n")
    assert "has no effect: no soft budget names it" in line


def test_a_budget_needs_a_price_on_every_model_it_covers(complaints: Complaints) -> None:
    (line,) = complaints(f"{RIGHT}    limits: {{spend: 5 usd/day}}\n")
    assert (
        line == '15: tenants[0].limits.spend: the model "chat" has no price, so its use would cost nothing: give it one'
    )


def test_a_budget_needs_no_price_of_a_pipeline(complaints: Complaints) -> None:
    pipeline = (
        "  - {name: two, pipeline: {steps: [{name: a, model: chat}, {name: b, model: chat, in: {prompt: a.text}}]}}\n"
    )
    assert complaints(f"{PRICED}    limits: {{spend: 5 usd/day}}\n".replace("tenants:", f"{pipeline}tenants:")) == []


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ("{prompt: 1 usd/1M}", "prompt and completion go together: write 0 for tokens without a price"),
        ("{}", "names no price: give prompt and completion, or request"),
        ("{request: 1 usd, prompt: 1 eur/1M, completion: 1 eur/1M}", "models[0].price.request in usd"),
        ("{request: 1}", "expected an amount of money such as 0.001 usd"),
    ],
)
def test_prices_that_cannot_be(complaints: Complaints, price: str, problem: str) -> None:
    lines = complaints(RIGHT.replace("- name: chat", f"- name: chat\n    price: {price}"))
    assert any(problem in line for line in lines)


REDIS = PRICED.replace("version: 1", "version: 1\nstate: {redis: redis://127.0.0.1:6379}")


@pytest.mark.parametrize(
    "text",
    [
        f"{REDIS}    limits: {{requests: 5/s, count: exact, on_redis_failure: refuse}}\n",
        f"{REDIS}    limits: [{{requests: 5/s}}, {{requests: 20/s, count: leased}}]\n",
        f"{REDIS}".replace("price:", "limits: {rows: 5/s, count: exact}\n    price:"),
        f"{PRICED}    limits: {{rows: 10k/min, bytes: 1.5MiB/s, device_ms: 900/s}}\n",
        f"{PRICED}".replace("price:", "limits: [{concurrency: 8}, {spend: 5 usd/day}]\n    price:"),
    ],
)
def test_the_counter_is_configured_at_the_limit(complaints: Complaints, text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"{PRICED}    limits: {{requests: 5/s, count: exact}}\n",
            "16: tenants[0].limits.count: needs state.redis: only the workers of a host count without it",
        ),
        (
            f"{PRICED}    limits: {{requests: 5/s, on_redis_failure: refuse}}\n",
            "16: tenants[0].limits.on_redis_failure: has no effect: Redis counts only `count: exact` and `leased`",
        ),
        (REDIS, "2: state.redis: has no effect: no limit is `count: exact` or `leased`, and there is no `listen.bus`"),
        (
            PRICED.replace("version: 1", "version: 1\nstate: {redis_timeout: 50ms}"),
            "2: state.redis_timeout: has no effect without state.redis",
        ),
        (
            REDIS.replace("redis://", "http://") + "    limits: {requests: 5/s, count: exact}\n",
            "2: state.redis: expected a Redis URL such as redis://HOST:6379/0, rediss://HOST or unix:///PATH",
        ),
        (
            PRICED.replace("price:", "limits: {enforce: shadow}\n    price:"),
            f"9: models[0].limits: limits nothing: give one of {UNITS}",
        ),
        (
            PRICED.replace("price:", "limits: {per: key, requests: 5/s}\n    price:"),
            "9: models[0].limits.per: unknown field: the fields here are requests, tokens, rows, bytes, device_ms, "
            "spend, concurrency, count, on_redis_failure, enforce",
        ),
        (
            RIGHT.replace("- name: chat", "- name: chat\n    limits: {spend: 1 usd/day}"),
            "9: models[0].limits.spend: needs the model's price: without one its use costs nothing",
        ),
        (
            PRICED + "    limits: {bytes: 5/s}\n",
            "16: tenants[0].limits.bytes: expected a rate of bytes such as 64KiB/s or 10MiB/min",
        ),
    ],
)
def test_counting_in_redis_needs_redis_and_redis_needs_a_count(complaints: Complaints, text: str, problem: str) -> None:
    assert complaints(text) == [problem]
