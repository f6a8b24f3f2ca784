"""The bounds of each wait of a request, by its kind."""

import pytest

from config.schema.config import TimeoutConfig
from gateway.request.path_parts import deadline_of
from tests.support.gateways import chat, infer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("own", [None, 20.0])
def test_only_the_total_bounds_a_text_that_is_not_streamed(stream: bool, own: float | None) -> None:
    timeout = TimeoutConfig.model_construct(first_byte=5.0, idle=2.0, whole=own, total=60.0)
    whole = own or 60.0
    expected = (65.0, 5.0, 2.0) if stream else (65.0, whole, whole)
    assert deadline_of(timeout, chat(stream=stream), 5.0) == expected
    assert deadline_of(timeout, infer(), 5.0) == (65.0, 5.0, 2.0)


def test_the_defaults_leave_a_thinking_model_its_time() -> None:
    """4,000 tokens at 20 a second; OpenAI's clients wait 600 s."""
    assert min(deadline_of(TimeoutConfig(), chat(), 0.0)) == 600.0 > 4_000 / 20
    assert deadline_of(TimeoutConfig(), chat(stream=True), 0.0).first_byte > 4_000 / 20
