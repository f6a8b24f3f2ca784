"""Drafts that are nodes of the file: sequences, templates, cascades, switches, guards and other judges."""

import json
from typing import Any

import pytest

from adapters.errors import BackendError, ContentFiltered
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import chat_fake, chat_script, rig, sent, text
from tests.support.gateways import chat

PROMPTED = {
    "name": "prompted",
    "steps": [
        {"name": "ask", "in": {"q": "request.text"}, "template": "In one word: {{ q }}"},
        {"name": "one", "model": "a", "in": {"prompt": "ask.text"}},
    ],
}
FIXED = {"name": "fixed", "template": "no idea"}
CASCADE = {"name": "tried", "cascade": [{"model": "a", "accept_if": 'text != "unsure"'}, {"model": "b"}]}
SWITCH = {"name": "chosen", "switch": [{"if": "request.n > 1", "model": "b"}, {"else": True, "model": "a"}]}
AGREED = {"name": "agreed", "agree": {"of": ["a", "b", FIXED]}}
VOTE = {"name": "vote", "ensemble": {"members": [{"model": "a", "weight": 2}, "b"], "combine": "vote"}}
REFINED = {
    "name": "refined",
    "steps": [{"name": "rough", "model": "a"}, {"name": "final", "model": "b", "in": {"prompt": "rough.text"}}],
    "out": {"text": "final.text"},
}
NODES = {
    "a sequence": (PROMPTED, "from a"),
    "a template": (FIXED, "no idea"),
    "a cascade": (CASCADE, "from a"),
    "a switch": (SWITCH, "from a"),
    "an agreement": (AGREED, "from a"),
    "an ensemble": (VOTE, "from a"),
    "a sequence with outputs": (REFINED, "from b"),
}


def fakes(**more: FakeAdapter) -> dict[str, FakeAdapter]:
    return {"a": chat_fake("from a"), "b": chat_fake("from b"), "c": chat_fake("from c"), **more}


@pytest.mark.parametrize(("node", "draft"), NODES.values(), ids=NODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_any_node_writes_a_draft(node: dict[str, Any], draft: str, stream: bool) -> None:
    graph = {"judge": {"of": ["c", node], "model": "j"}}
    one = rig(graph, fakes(j=FakeAdapter(chat_script("[[B]]"), chat_script("[[A]]"))))
    answer = await one.core.handle(one.principal, chat("whole", stream=stream), {}, one.record())
    body = answer.body if answer.body is not None else b"".join([piece async for piece in answer])
    assert draft.encode() in body
    prompts = [sent(one, "j", call)["messages"][0]["content"] for call in (0, 1)]
    assert all(draft in prompt and "from c" in prompt for prompt in prompts)


async def test_several_drafts_of_one_node_are_recorded_one_by_one() -> None:
    graph = {"agree": {"of": [PROMPTED], "n": 3}}
    one = rig(graph, fakes(a=FakeAdapter(chat_script("x"), chat_script("y"), chat_script("Y."))))
    record = one.record()
    answer = await one.core.handle(one.principal, chat("whole"), {}, record)
    assert json.loads(answer.body or b"")["choices"][0]["message"]["content"] == "y"
    names = [step.name for step in record.trace.steps]
    assert {f"prompted_{at}" for at in (1, 2, 3)} <= set(names)
    assert {f"prompted_{at}.one" for at in (1, 2, 3)} <= set(names)
    assert record.usage is not None
    assert record.usage.completion_tokens == 3 * 2
    assert "In one word" in sent(one, "a")["messages"][0]["content"]


async def test_a_draft_reads_the_inputs_of_its_step_and_earlier_steps() -> None:
    draft = {
        "name": "both",
        "steps": [
            {"name": "t", "in": {"q": "request.prompt", "p": "first.text"}, "template": "{{ q }} after {{ p }}"},
            {"name": "m", "model": "a", "in": {"prompt": "t.text"}},
        ],
    }
    steps = [
        {"name": "first", "model": "b"},
        {"name": "best", "in": {"prompt": "first.text"}, "judge": {"of": ["c", draft], "model": "j"}},
    ]
    one = rig({"steps": steps}, fakes(j=chat_fake("[[C]]")))
    assert await text(one) == "from c"
    assert sent(one, "a")["messages"][0]["content"] == "from b after from b"


async def test_a_failing_or_blocked_draft_is_left_out() -> None:
    guarded = {
        "name": "guarded",
        "steps": [
            {"name": "m", "model": "a"},
            {"name": "g", "guard": {"model": "b", "block_if": 'text == "from b"', "on": "answer"}},
        ],
    }
    broken = {"name": "broken", "steps": [{"name": "x", "model": "d"}]}
    down = FakeAdapter(Script(fault=BackendError("down")))
    one = rig({"judge": {"of": [guarded, broken, "c"], "model": "j"}}, fakes(d=down, j=chat_fake("[[A]]")))
    record = one.record()
    answer = await one.core.handle(one.principal, chat("whole"), {}, record)
    assert b"from c" in (answer.body or b"")
    header = dict(answer.headers)["x-headrace-steps"]
    assert {"guarded=failed", "broken=failed"} <= set(header.split(", "))
    assert not one.adapters["j"][0].calls, "one draft is left"
    one = rig({"agree": {"of": [guarded, {**guarded, "name": "again", "steps": guarded_again(guarded)}]}}, fakes())
    with pytest.raises(ContentFiltered):
        await text(one)


def guarded_again(guarded: dict[str, Any]) -> list[dict[str, Any]]:
    """The same steps by other names, which are unique in a pipeline."""
    return [{**step, "name": f"{step['name']}2"} for step in guarded["steps"]]


async def test_a_judge_of_judges_ends_once() -> None:
    inner = {"name": "inner", "judge": {"of": ["a", "b"], "model": "j"}}
    one = rig({"judge": {"of": [inner, "c"], "model": "j"}}, fakes(j=chat_fake("no verdict")))
    assert await text(one) == "from a"
    assert len(one.adapters["j"][0].calls) == 4
