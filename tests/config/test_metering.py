"""Limits that would do nothing, and money that cannot be added up."""

import pytest

from .conftest import RIGHT, Complaints

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
def test_what_is_accepted(complaints: Complaints, limits: str) -> None:
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
        ("limits: {per: keys, requests: 5/s}", "limits.per: expected tenant or key or model or user"),
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
            "limits.models: is empty and matches nothing: say what matches, or remove it",
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
def test_what_is_refused(complaints: Complaints, limits: str, problem: str) -> None:
    (told,) = complaints(f"{PRICED}    {limits}\n")
    assert told.startswith("16: tenants[0].")
    assert problem in told


def test_a_budget_needs_a_price_on_every_model_it_covers(complaints: Complaints) -> None:
    (told,) = complaints(f"{RIGHT}    limits: {{spend: 5 usd/day}}\n")
    assert (
        told == '15: tenants[0].limits.spend: the model "chat" has no price, so its use would cost nothing: give it one'
    )


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ("{prompt: 1 usd/1M}", "prompt and completion go together: write 0 for what is free"),
        ("{}", "names no price: give prompt and completion, or request"),
        ("{request: 1 usd, prompt: 1 eur/1M, completion: 1 eur/1M}", "models[0].price.request in usd"),
        ("{request: 1}", "expected an amount of money such as 0.001 usd"),
    ],
)
def test_prices_that_cannot_be(complaints: Complaints, price: str, problem: str) -> None:
    told = complaints(RIGHT.replace("- name: chat", f"- name: chat\n    price: {price}"))
    assert any(problem in line for line in told)
