"""Guards that judge a reserved prompt: a request that its limits refuse costs no call of a model that judges."""

import asyncio
import json
from typing import Any

import pytest

from adapters.errors import LimitExceeded
from adapters.requests import GenerateRequest
from tests.support.gateways import Rig, chat, config
from tests.support.guarding import WORDS, received
from tests.support.judging import BY_CHAT, Judging, answer, judged, prompt_of

PROMPT: dict[str, Any] = {**BY_CHAT, "on": ["prompt"]}
ROUTE: dict[str, Any] = {**PROMPT, "action": "route", "to": "other"}
PRICE = {"prompt": "10 eur/1M", "completion": "10 eur/1M"}
OVER: dict[str, Any] = {
    "requests": {"requests": "1/day"},
    "tokens": {"tokens": "12/day"},
    "spend": {"spend": "0.0001 eur/day"},
    "model": [{"models": ["chat"], "requests": "1/day"}],
}


@pytest.mark.parametrize("limit", OVER)
@pytest.mark.parametrize("kind", [PROMPT, {**PROMPT, "mode": "monitor"}, {**PROMPT, "on_error": "pass"}], ids=str)
async def test_a_request_over_its_limit_costs_no_judge(limit: str, kind: dict[str, Any]) -> None:
    model, judge = answer("fine"), Judging()
    one = judged(model, judge, kind, limits=OVER[limit], price=PRICE)
    responses = await received(one, "/v1/chat/completions", 3, **prompt_of("a horse"))
    assert [status for status, _, _ in responses] == [200, 429, 429]
    assert all("retry-after" in {name.lower() for name in headers} for _, _, headers in responses[1:])
    assert (len(judge.calls), len(model.calls)) == (1, 1)
    assert [record.cost for record in one.log.records[1:]] == [None, None]
    one.assert_idle()


async def test_the_place_of_a_request_is_held_while_it_is_judged() -> None:
    judge = Judging()
    judge.gate = asyncio.Event()
    one = judged(answer("fine"), judge, PROMPT, limits={"concurrency": 1})
    first = asyncio.create_task(one.core.handle(one.principal, chat(), {}, one.record()))
    while not judge.requests:
        await asyncio.sleep(0)
    with pytest.raises(LimitExceeded):
        await one.core.handle(one.principal, chat(), {}, one.record())
    judge.gate.set()
    await first
    assert len(judge.calls) == 1
    one.assert_idle()


async def test_a_cancelled_judgement_holds_nothing() -> None:
    judge = Judging()
    judge.gate = asyncio.Event()
    one = judged(answer("fine"), judge, PROMPT, limits={"concurrency": 1, "tokens": "1000/day"})
    first = asyncio.create_task(one.core.handle(one.principal, chat(), {}, one.record()))
    while not judge.requests:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    one.assert_idle()


async def test_a_prompt_that_a_word_forbids_takes_no_request_and_is_not_judged() -> None:
    judge = Judging()
    one = judged(answer("fine"), judge, WORDS, PROMPT, limits={"requests": "9/day"})
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    assert (one.left("requests"), judge.calls) == (9, [])


async def test_a_replaced_prompt_is_charged_its_judge() -> None:
    guard = {**PROMPT, "action": "replace", "text": "No."}
    one = judged(answer("fine"), Judging(), guard, limits={"tokens": "1000/day", "requests": "9/day"})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, "No." in body) == (200, True)
    assert one.left("tokens") == pytest.approx(1000 - 11, abs=1)
    assert one.left("requests") == pytest.approx(8, abs=0.1)


def moving(other: Any, *, limits: Any, action: dict[str, Any] = ROUTE) -> tuple[Rig, Judging]:
    judge = Judging()
    return judged(answer("first"), judge, action, others={"other": other}, limits=limits), judge


async def test_a_request_that_moves_draws_on_the_limits_of_its_new_model() -> None:
    limits = [
        {"tokens": "1000/day", "requests": "9/day"},
        {"models": ["chat"], "requests": "9/day"},
        {"models": ["other"], "requests": "2/day"},
    ]
    one, judge = moving(answer("second"), limits=limits)
    responses = await received(one, "/v1/chat/completions", 3, **prompt_of("a zebra"))
    assert [status for status, _, _ in responses] == [200, 200, 429]
    assert "second" in responses[0][1]
    assert len(judge.calls) == 3
    # Two answers with their judges, and the judge of a request that its new model refused.
    assert one.left("tokens") == pytest.approx(1000 - 2 * 5 - 3 * 11, abs=1)
    assert one.left("requests") == pytest.approx(9 - 3, abs=0.1)
    one.assert_idle()
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a horse"))
    assert (status, "first" in body) == (200, True)


async def test_a_request_that_moves_needs_one_place() -> None:
    one, _ = moving(answer("second"), limits={"concurrency": 1, "requests": "9/day"})
    responses = await received(one, "/v1/chat/completions", 2, **prompt_of("a zebra"))
    assert [status for status, _, _ in responses] == [200, 200]
    assert one.left("requests") == pytest.approx(7, abs=0.1)
    one.assert_idle()


async def test_a_request_that_moves_is_sent_as_its_new_route_writes_it() -> None:
    other = answer("second")
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "judge", "other")]
    rewrite = {"force": {"temperature": 0.5}}
    models = [
        {"name": "judge", "routes": [{"to": "judge"}]},
        {"name": "other", "routes": [{"to": "other"}]},
        {"name": "chat", "routes": [{"to": "main", "rewrite": rewrite}], "guards": ["g"]},
    ]
    made = config(guards=[ROUTE], pools=pools, models=models, tenants=[{"name": "acme", "models": ["chat"]}])
    one = Rig(made, {"main": [answer("first")], "judge": [Judging()], "other": [other]})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, "second" in body) == (200, True)
    request = other.calls[0].request
    assert isinstance(request, GenerateRequest)
    assert json.loads(bytes(request.fields["model"])) == "other"
    assert "temperature" not in request.fields
    one.assert_idle()


async def test_a_pipeline_over_its_limit_costs_no_judge() -> None:
    judge = Judging()
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "judge")]
    models = [
        {"name": "judge", "routes": [{"to": "judge"}]},
        {"name": "small", "routes": [{"to": "main"}]},
        {"name": "chat", "pipeline": {"steps": [{"name": "draft", "model": "small"}]}, "guards": ["g"]},
    ]
    tenants = [{"name": "acme", "models": ["chat"], "limits": {"requests": "1/day", "tokens": "1000/day"}}]
    made = config(guards=[PROMPT], pools=pools, models=models, tenants=tenants)
    one = Rig(made, {"main": [answer("fine")], "judge": [judge]})
    responses = await received(one, "/v1/chat/completions", 2, **prompt_of("a horse"))
    assert [status for status, _, _ in responses] == [200, 429]
    assert len(judge.calls) == 1
    assert one.left("tokens") == pytest.approx(1000 - 5 - 11, abs=1)
    one.assert_idle()
