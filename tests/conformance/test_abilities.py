"""Every cell of the table of abilities, and the page that shows it."""

from typing import Any

import anthropic
import openai
import pytest

from tests.support.agents import matrix
from tests.support.providers.abilities import ABILITIES, PAGE, page, proves, stage
from tests.support.providers.script import Reply
from tests.support.providers.table import PROVIDERS, SERVERS

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("ability", ABILITIES)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_has_an_ability_or_its_lack_is_reported(name: str, ability: str) -> None:
    await proves(PROVIDERS[name], ability)


@pytest.mark.parametrize("ability", [ability for ability in ABILITIES if ability != "errors"])
@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_of_one_s_own_has_an_ability(name: str, ability: str) -> None:
    await proves(SERVERS[name], ability)


async def test_refusals_of_vllm_have_their_codes() -> None:
    async with stage(SERVERS["vllm"]) as on:
        for messages, fields in (
            ([{"role": "assistant", "content": "hi"}], {}),
            ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}], {}),
            ([{"role": "user", "content": "hi"}], {"max_tokens": 300_000}),
            ([{"role": "user", "content": "hi"}], {"tool_choice": "required"}),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await on.chat(messages, **fields)
            assert on.script.refused.pop() in str(caught.value)
        on.play("rate")
        with pytest.raises(openai.APIStatusError) as overloaded:
            await on.chat()
        assert (overloaded.value.status_code, overloaded.value.code) == (503, "overloaded")
        on.play("in the stream")
        with pytest.raises(openai.APIError):
            await on.streamed_chat()
        assert on.script.received


async def test_a_late_system_message_is_the_users_where_templates_refuse_it() -> None:
    """Claude Code sends some, which OpenAI takes, and templates of models do not."""
    system: Any = {"role": "system", "content": "be terse"}
    for name, roles in (("vllm", ["user"]), ("openai", ["user", "system"])):
        async with stage((PROVIDERS | SERVERS)[name]) as on:
            await on.message([{"role": "user", "content": "hi"}, system])
            assert [turn.role for turn in on.last.turns] == roles
            assert "".join(turn.text for turn in on.last.turns) == "hibe terse"


def test_the_page_of_clients_has_the_matrix_of_agents() -> None:
    assert matrix.PAGE.read_text() == matrix.page(), "run python -m tests.support.agents.matrix"


def test_the_page_has_the_table_of_the_cells() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.support.providers.abilities"
    assert all(provider.lacks.keys() <= ABILITIES.keys() for provider in PROVIDERS.values())


@pytest.mark.parametrize(("name", "finish"), [("mistral", "error"), ("deepseek", "insufficient_system_resource")])
async def test_an_answer_that_a_provider_could_not_complete_is_no_message(name: str, finish: str) -> None:
    async with stage(PROVIDERS[name]) as on:
        for is_streamed in (False, True):
            on.play(Reply("half", finish=finish))
            with pytest.raises(anthropic.APIStatusError):
                await on.message(stream=is_streamed)
            on.play(Reply("half", finish=finish))
            chunks = await on.streamed_chat()
            assert finish in [choice.finish_reason for chunk in chunks for choice in chunk.choices]


async def test_the_end_of_the_context_is_a_limit_of_the_length() -> None:
    async with stage(PROVIDERS["mistral"]) as on:
        for is_streamed in (False, True):
            on.play(Reply("half", finish="model_length"))
            assert (await on.message(stream=is_streamed)).stop_reason == "max_tokens"
        on.play(Reply("half", finish="model_length"))
        answer = await on.door.openai.responses.create(model="chat", input="hi")
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
