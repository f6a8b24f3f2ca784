"""Answers of a server whose engine proposes tokens: clients see no difference but time."""

import re
from typing import Any

import pytest

from tests.runtimes.llm.server_fixtures import HI, MODEL, PROMPT_TOKENS, get, post, serving, until_idle

TEXT = "one two three, one two three, one two three, one two four"


@pytest.mark.processes
async def test_streams_and_whole_answers_are_as_without() -> None:
    for proposes in (None, 6):
        async with serving(TEXT, proposes=proposes) as running:
            whole = await running.client.chat.completions.create(model=MODEL, messages=HI)
            assert whole.choices[0].message.content == TEXT
            assert whole.usage.completion_tokens == len(TEXT) + 1
            assert whole.usage.prompt_tokens == PROMPT_TOKENS
            stream = await running.client.chat.completions.create(
                model=MODEL, messages=HI, stream=True, n=3, stream_options={"include_usage": True}
            )
            texts, total = ["", "", ""], 0
            async for chunk in stream:
                total = chunk.usage.completion_tokens if chunk.usage else total
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
            assert (texts, total) == ([TEXT] * 3, 3 * (len(TEXT) + 1))
            assert (running.engine.stats().accepted_tokens > 0) == (proposes is not None)


@pytest.mark.processes
@pytest.mark.parametrize("stop", ["wo three, one two f", "ne two three, one two t"])
async def test_a_stop_text_ends_an_answer_within_accepted_tokens(stop: str) -> None:
    counts = []
    for proposes in (None, 6):
        async with serving(TEXT, proposes=proposes) as running:
            answer = await running.client.chat.completions.create(model=MODEL, messages=HI, stop=stop)
            assert answer.choices[0].message.content == TEXT[: TEXT.index(stop)]
            assert answer.choices[0].finish_reason == "stop"
            counts.append(answer.usage.completion_tokens)
            await until_idle(running.engine)
    assert counts[0] == counts[1] == TEXT.index(stop) + len(stop)


@pytest.mark.processes
async def test_every_bound_of_tokens_is_exact() -> None:
    async with serving(TEXT, proposes=6) as running:
        for most in range(1, len(TEXT) + 1, 3):
            answer = await running.client.chat.completions.create(model=MODEL, messages=HI, max_tokens=most)
            assert answer.choices[0].message.content == TEXT[:most]
            assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (most, "length")


@pytest.mark.processes
async def test_an_answer_of_a_form_has_no_proposals() -> None:
    async with serving("[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", proposes=6) as running:
        body = {"model": MODEL, "messages": HI, "guided_json": {"type": "array"}}
        status, _, answer = await post(running, "/v1/chat/completions", body)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
        assert running.engine.stats().proposed_tokens == 0


@pytest.mark.processes
async def test_metrics_have_vllms_names() -> None:
    async with serving(TEXT, proposes=6) as running:
        await running.client.chat.completions.create(model=MODEL, messages=HI)
        (_, text), stats = await get(running, "/metrics"), running.engine.stats()
        for prefix in ("headrace_llm_", "vllm:"):
            counts = [
                float(line[1])
                for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
                if (line := re.search(rf"^{prefix}spec_decode_{name}_total ([\d.]+)$", text, re.MULTILINE))
            ]
            assert counts == [stats.drafts, stats.proposed_tokens, stats.accepted_tokens]
            assert 0 < counts[0] < counts[2] <= counts[1]


# ── predictions of clients ────────────────────────────────────────────────────────────────────────────

PLAIN = "The quick brown fox jumps over a lazy dog; pack my box with five dozen liquor jugs."


def predicted(content: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": HI, "prediction": {"type": "content", "content": content}, **fields}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("content", "right", "wrong"),
    [
        (PLAIN, range(len(PLAIN) * 2 // 3, len(PLAIN)), range(1)),
        ([{"type": "text", "text": PLAIN[:30]}, {"type": "text", "text": PLAIN[30:]}], range(50, 83), range(1)),
        (PLAIN.replace("quick", "small"), range(40, 83), range(1, 30)),
        (PLAIN[::-1], range(20), range(1, 60)),
        (PLAIN * 20, range(50, 83), range(7)),
        ("", range(0), range(0)),
    ],
)
async def test_a_prediction_saves_steps_and_changes_no_answer(content: Any, right: range, wrong: range) -> None:
    async with serving(PLAIN, proposes=6) as running:
        status, headers, answer = await post(running, "/v1/chat/completions", predicted(content))
        assert (status, answer["choices"][0]["message"]["content"]) == (200, PLAIN)
        assert "x-headrace-ignored" not in headers
        details = answer["usage"].get("completion_tokens_details")
        if not content:
            assert details is None
            return
        accepted, rejected = details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]
        assert accepted in right
        assert rejected in wrong
        stats = running.engine.stats()
        assert accepted <= stats.accepted_tokens
        assert accepted + rejected <= stats.proposed_tokens
        assert stats.steps <= len(PLAIN) + 2 - accepted


@pytest.mark.processes
async def test_a_stream_counts_the_predictions_of_all_its_choices() -> None:
    async with serving(PLAIN, proposes=6) as running:
        stream = await running.client.chat.completions.create(
            model=MODEL, messages=HI, stream=True, n=2, stream_options={"include_usage": True},
            prediction={"type": "content", "content": PLAIN}, stop="dozen",
        )  # fmt: skip
        texts, usage = ["", ""], None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert texts == [PLAIN[: PLAIN.index("dozen")]] * 2
        assert usage is not None
        assert usage.completion_tokens_details.accepted_prediction_tokens > 60
        await until_idle(running.engine)


@pytest.mark.processes
async def test_a_prediction_is_listed_without_speculation_and_checked() -> None:
    for proposes in (None, 6):
        async with serving(PLAIN, proposes=proposes) as running:
            status, headers, answer = await post(running, "/v1/chat/completions", predicted(PLAIN))
            listed = headers.get("x-headrace-ignored")
            assert (status, listed) == (200, "prediction" if proposes is None else None)
            assert ("completion_tokens_details" in answer["usage"]) == (proposes is not None)
            for content in (None, 5, [{"type": "image", "text": "a"}], [{"type": "text"}], {"text": "a"}):
                status, _, answer = await post(running, "/v1/chat/completions", predicted(content))
                assert (status, answer["error"]["param"].split(".")[0]) == (400, "prediction")


@pytest.mark.processes
async def test_an_answer_of_a_form_proposes_no_prediction() -> None:
    async with serving("[1, 1, 1]", proposes=6) as running:
        body = predicted("[1, 1, 1]", guided_json={"type": "array"})
        status, _, answer = await post(running, "/v1/chat/completions", body)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "[1, 1, 1]")
        details = answer["usage"]["completion_tokens_details"]
        assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (0, 0)
