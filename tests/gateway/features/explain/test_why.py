"""Explanations match the behaviour of the core."""

import json
from typing import Any

import pytest

from adapters.base import Answer
from adapters.errors import InferenceError
from adapters.fake import FakeAdapter
from config.cases import RequestConfig, described_request
from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from gateway.features.explain.text import explained
from gateway.features.explain.why import Policy, headers_of, principal_of, request_of
from gateway.telemetry import Record
from policies.routing.explain import Explanation
from tests.support.gateways import Rig, config

POOLS = ["main", "big", "own"]
ROUTES: list[dict[str, Any]] = [
    {"name": "long", "when": {"prompt_tokens": ">4000"}, "to": "big"},
    {"when": {"vision": True}, "to": "own", "rewrite": {"force": {"seed": 1}}},
    {"when": {"label": {"team": "ads"}, "tools": False}, "split": {
        "sticky": "user", "arms": [{"pool": "main", "weight": 1}, {"pool": "big", "weight": 1}]}},
    {"when": {"version": ["2"]}, "to": "big"},
    {"when": {"front": ["chat"]}, "to": "main", "fallback": ["big"],
     "rewrite": {"caps": {"max_tokens": 100}, "model": "llama", "drop": ["logprobs"]}},
]  # fmt: skip


CONFIG = config(
    pools=[
        {"name": name, "endpoints": ["http://127.0.0.1:9"], **({"model": "the-own"} if name == "own" else {})}
        for name in POOLS
    ],
    models=[
        {
            "name": "chat",
            "aliases": ["gpt"],
            "versions": ["2"],
            "routes": ROUTES,
            "price": {"prompt": "1 usd/1M", "completion": "2 usd/1M"},
        }
    ],
    tenants=[{"name": "acme", "models": ["chat"], "limits": {"requests": "10000/min"}}],
)


def explain(**question: Any) -> Explanation:
    return Policy.of(CONFIG).explain_description(
        described_request({"tenant": "acme", "model": "chat", **question}), 0.0
    )


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"model": "gpt"},
    {"model": "gpt@2"},
    {"model": "chat@3"},
    {"model": "other"},
    {"front": "embeddings"},
    {"front": "infer"},
    {"front": "infer", "body": {"temperature": 3, "mine": "x"}},
    {"prompt_tokens": 5000},
    {"vision": True, "stream": True},
    {"labels": {"team": "ads"}, "user": "ann"},
    {"labels": {"team": "ads"}, "user": "bob"},
    {"labels": {"team": "ads"}, "tools": True},
    {"max_tokens": 5000, "body": {"logprobs": True, "temperature": 1}},
    {"max_tokens": 50, "json_schema": True, "header": {"X-A": "b"}},
    {"front": "text_completion"},
    {"front": "text_completion", "model": "chat@2"},
    {"body": {"max_tokens": "9"}},
    {"body": {"messages": []}},
]


async def handled(one: Rig, written: RequestConfig, record: Record) -> Answer:
    request = request_of(written)
    return await one.core.handle(principal_of(written, None), request, headers_of(written), record)


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
async def test_the_explanation_matches_the_execution(question: dict[str, Any]) -> None:
    one = Rig(CONFIG, {name: [FakeAdapter()] for name in POOLS})
    explanation = explain(**question)
    written = described_request({"tenant": "acme", "model": "chat", **question})
    record = one.record()
    if explanation.refused is not None:
        assert explanation.because
        with pytest.raises(InferenceError) as caught:
            await handled(one, written, record)
        assert caught.value.code == explanation.refused
        return
    answer = await handled(one, written, record)
    assert explanation.to is not None
    assert (explanation.to.pool, explanation.to.arm, explanation.model) == (answer.pool, record.arm, record.model)
    expected, received = request_of(written), one.adapters[answer.pool][0].calls[0].request
    before, after = expected.codec.fields(expected), received.codec.fields(received)
    for name in before.keys() | after.keys() - {"model"}:  # which the adapter writes for a pool that has one
        value = json.loads(bytes(after[name])) if name in after else None
        same = before.get(name) == after.get(name)
        assert explanation.sent.get(name, ...) == (... if same else value) or (name == "model" and answer.pool == "own")
    await answer.aclose()
    one.assert_idle()


def test_the_sent_request_has_the_pools_own_name_of_the_model() -> None:
    assert explain(vision=True).sent == {"seed": 1, "model": "the-own"}
    assert explain(max_tokens=5000, body={"logprobs": True}).sent == {
        "max_tokens": 100,
        "logprobs": None,
        "model": "llama",
    }


def test_a_line_of_a_batch_has_the_price_the_band_and_the_bounds_of_batches() -> None:
    batches = {"enqueued_tokens": 5000, "active": 3}
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M", "batch": "50%"}
    made = config(
        pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in POOLS],
        models=[{"name": "chat", "routes": ROUTES, "price": price}],
        tenants=[{"name": "acme", "models": ["chat"], "batches": batches}],
    )
    question = {"tenant": "acme", "model": "chat", "prompt_tokens": 1000, "max_tokens": 50}
    live = Policy.of(made).explain_description(described_request(question), 0.0)
    line = Policy.of(made).explain_description(described_request({**question, "batch": True}), 0.0)
    assert (live.band, line.band) == (None, "batch")
    assert (live.cost, line.cost) == ("0.0011 usd", "0.00055 usd")
    assert {"per": "tenant", "batches": batches} in line.limits
    assert all("batches" not in limit for limit in live.limits)
    assert "as a line of a batch: below all live requests" in explained(line)


def test_the_cost_is_that_of_the_sent_request() -> None:
    assert explain(prompt_tokens=1000, max_tokens=5000).cost == "0.0012 usd"
    assert explain(prompt_tokens=5000, max_tokens=5000).cost == "0.015 usd"


@pytest.mark.parametrize(
    ("scope", "refused", "because"),
    [
        (Scope(models=["other"]), "model_not_found", 'the scopes of its key do not include the model "chat"'),
        (Scope(routes=["long"]), "model_not_found", "the scopes of its key do not include routes[4]"),
        (Scope(fronts=["models"]), "not_in_scope", "the scopes of its key are not for chat"),
        (Scope(models=["chat"]), None, None),
    ],
)
def test_scopes_count(scope: Scope, refused: str | None, because: str | None) -> None:
    policy = Policy.of(CONFIG)
    holder = Principal("acme", "k", scope=scope)
    explanation = policy.explain_description(
        described_request({"tenant": "acme", "model": "chat", "key": "k"}), 0.0, holder
    )
    assert (explanation.refused, explanation.because) == (refused, because)


@pytest.mark.parametrize(
    ("pool", "because"),
    [
        ({"protocol": {"name": "openai", "passes": ["rerank"]}, "endpoints": ["http://127.0.0.1:9"]}, None),
        ({"protocol": "http", "endpoints": ["http://127.0.0.1:9"]}, None),
        ({"runtime": {"kind": "llm", "model": "m"}}, None),
        (
            {"endpoints": ["http://127.0.0.1:9"]},
            "the pool main does not forward rerank: if its servers support it, list it in `passes` of the protocol",
        ),
        ({"protocol": "anthropic", "endpoints": ["http://127.0.0.1:9"]}, "the pool main does not forward rerank"),
    ],
)
def test_a_pool_without_rerank_is_named(pool: dict[str, Any], because: str | None) -> None:
    made = config(
        pools=[{"name": "main", **pool}],
        models=[{"name": "chat", "routes": [{"when": {"front": ["rerank"]}, "to": "main"}]}],
    )
    question = {"tenant": "acme", "model": "chat", "front": "rerank"}
    explanation = Policy.of(made).explain_description(described_request(question), 0.0)
    refused = None if because is None else "unsupported_operation"
    assert (explanation.refused, explanation.because) == (refused, because)


@pytest.mark.parametrize(
    ("question", "because"),
    [
        ({"tenant": "acm"}, 'no tenant is named "acm" (did you mean "acme"?)'),
        ({"model": "chta"}, 'no model has the name "chta" (did you mean "chat"?)'),
        ({"model": "x" * 256}, f'no model has the name "{"x" * 128}"'),
        ({"front": "text_completion"}, "no route matches it, and there is no `else`"),
    ],
)
def test_an_explained_refusal_has_the_reason_that_clients_do_not_see(question: dict[str, Any], because: str) -> None:
    explanation = explain(**question)
    assert (explanation.refused, explanation.because) == ("model_not_found", because)
