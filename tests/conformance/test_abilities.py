"""Every cell of the table of abilities, and the page that shows it."""

import anthropic
import pytest

from tests.support.providers.abilities import ABILITIES, PAGE, page, proves, stage
from tests.support.providers.script import Reply
from tests.support.providers.table import PROVIDERS

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("ability", ABILITIES)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_has_an_ability_or_its_lack_is_reported(name: str, ability: str) -> None:
    await proves(PROVIDERS[name], ability)


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
