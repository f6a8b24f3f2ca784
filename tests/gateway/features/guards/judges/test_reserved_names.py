"""Recognisers of names see a reserved prompt: a request that its limits refuse costs no call of one."""

from functools import partial
from typing import Any

import pytest

from gateway.features.payloads.drafts import PayloadDraft
from gateway.features.recording.sample import Draft
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Observer
from tests.support.gateways import Rig, config
from tests.support.guarding import received
from tests.support.judging import prompt_of
from tests.support.personal import written
from tests.support.recognising import RECOGNISER, Echo, Recognising, recognising

PATH = "/v1/chat/completions"
TEXT = "Anna Schmidt moved."


def limited(limits: dict[str, Any], guard: dict[str, Any] | None = None) -> tuple[Rig, Recognising, Echo]:
    server, model = Recognising(), Echo()
    tenants = [{"name": "acme", "models": ["*"], "limits": limits}]
    return recognising(server, model, guard, tenants=tenants), server, model


@pytest.mark.parametrize("guard", [RECOGNISER, {**RECOGNISER, "mode": "monitor"}, {**RECOGNISER, "action": "block"}])
async def test_a_request_over_its_limit_costs_no_recogniser(guard: dict[str, Any]) -> None:
    one, server, _ = limited({"requests": "1/day"}, guard)
    responses = await received(one, PATH, 3, **prompt_of(TEXT))
    assert [status for status, _, _ in responses][1:] == [429, 429]
    assert len(server.texts) == 1
    one.assert_idle()


async def test_a_masked_request_is_sent_as_its_route_writes_it() -> None:
    server, model = Recognising(), Echo()
    rewrite = {"defaults": {"temperature": 0.5}}
    models = [
        {"name": "chat", "guards": ["people"], "routes": [{"to": "main", "rewrite": rewrite}]},
        {"name": "names", "routes": [{"to": "names"}]},
    ]
    endpoints = {"endpoints": ["http://127.0.0.1:9"]}
    pools = [{"name": "main", **endpoints}, {"name": "names", "protocol": "http", **endpoints}]
    one = Rig(config(guards=[RECOGNISER], models=models, pools=pools), {"main": [model], "names": [server]})
    await received(one, PATH, **prompt_of(TEXT))
    (call,) = model.calls
    assert bytes(call.request.fields["temperature"]) == b"0.5"  # type: ignore[attr-defined]
    assert "Anna" not in model.received[0]
    one.assert_idle()


async def test_a_recorded_request_has_no_name() -> None:
    drafts = list[Draft]()

    def watch(exchange: ClientExchange) -> Observer:
        drafts.append(Draft(exchange, {}))
        return drafts[-1]

    one, _, _ = limited({"requests": "1/day"})
    one.core.watchers += (watch,)
    await received(one, PATH, 2, **prompt_of(TEXT))
    first, refused = drafts
    assert written("PERSON", "Anna Schmidt").encode() in bytes(first.request.fields["messages"])  # type: ignore[attr-defined]
    assert first.exchange.record.withheld is False
    assert refused.exchange.record.withheld is True


@pytest.mark.parametrize("order", [[Draft, PayloadDraft], [PayloadDraft, Draft]])
@pytest.mark.parametrize("fails", [False, True])
async def test_an_event_of_a_request_has_no_name_beside_a_record(order: list[type[Draft]], fails: bool) -> None:
    ended = list[PayloadDraft]()
    drafts = dict[type[Draft], Draft]()

    def watch(kind: type[Draft], exchange: ClientExchange) -> Observer:
        if kind is PayloadDraft:
            drafts[kind] = PayloadDraft(exchange, lambda draft, _: ended.append(draft), answers=True)
        else:
            drafts[kind] = Draft(exchange, {})
        return drafts[kind]

    one, server, _ = limited({"requests": "1/day"})
    server.fails = fails
    one.core.watchers += tuple(partial(watch, kind) for kind in order)
    await received(one, PATH, **prompt_of(TEXT))
    assert [draft.is_decided for draft in ended] == [not fails]
    if not fails:
        bodies = [bytes(draft.request.fields["messages"]) for draft in drafts.values()]  # type: ignore[attr-defined]
        assert not any(b"Anna" in body for body in bodies)
