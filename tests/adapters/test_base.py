"""An answer ends exactly once, and every listener is notified exactly once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import Answer, as_inference_error
from adapters.errors import BackendError, ClientGone, InferenceError, TransportError


class Ends:
    """Records how an answer ended at each notification."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def __call__(self, answer: Answer, error: BaseException | None) -> None:
        assert answer.ended
        assert answer.error is error
        self.errors.append(error)


def stream() -> Answer:
    return Answer(content_type="text/event-stream", body=None)


@given(st.lists(st.sampled_from([None, BackendError("a"), TransportError("b"), ClientGone("c")]), min_size=1))
def test_the_first_end_is_the_end(errors: list[InferenceError | None]) -> None:
    answer, before, after = stream(), Ends(), Ends()
    answer.when_ended(before)
    for error in errors:
        answer.end(error)
    answer.when_ended(after)
    assert before.errors == after.errors == [errors[0]]


def test_callbacks_run_in_order_at_the_end_and_not_before() -> None:
    answer = stream()
    order: list[int] = []
    for i in range(3):
        answer.when_ended(lambda *_, i=i: order.append(i))
    assert order == []
    answer.end(None)
    assert order == [0, 1, 2]


def test_a_callback_that_ends_it_again_changes_nothing() -> None:
    answer, ends = stream(), Ends()
    answer.when_ended(lambda a, _: a.end(BackendError("again")))
    answer.when_ended(ends)
    answer.end(None)
    assert (ends.errors, answer.error) == ([None], None)


async def test_a_whole_answer_has_ended() -> None:
    answer, ends = Answer(content_type="application/json", body=b"{}"), Ends()
    answer.when_ended(ends)
    await answer.aclose()
    assert ends.errors == [None]
    assert [piece async for piece in answer] == []


async def test_leaving_is_an_end() -> None:
    answer, ends = stream(), Ends()
    answer.when_ended(ends)
    await answer.aclose()
    await answer.aclose()
    [error] = ends.errors
    assert isinstance(error, ClientGone)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, None), (RuntimeError(), None), (asyncio.CancelledError(), ClientGone), (BackendError("a"), BackendError)],
)
def test_as_inference_error(error: BaseException | None, expected: type[InferenceError] | None) -> None:
    assert type(as_inference_error(error)) is (expected or type(None))
