"""Compares an answer with the recorded one."""

from typing import NamedTuple

import msgspec

from config.schema.config import CompareConfig
from gateway.features.recording.contents import HEADER_LENGTH
from gateway.features.recording.entries import Content
from gateway.features.replay.against.exchanging import ReceivedAnswer, tokens_of
from gateway.features.replay.against.planned import ResentRequest
from gateway.features.shadow.answers import WholeAnswer, content_of, of_places
from gateway.telemetry.redaction.streams import texts_of
from policies.comparison.answers import AnswerContent
from policies.comparison.differences import differences


class Judgement(NamedTuple):
    """The differences of one answer from the recorded one."""

    status: str = ""
    """`200 → 503`; empty if the status is the recorded one."""
    parts: tuple[str, ...] | None = None
    """The parts of the body that differ; None if the bodies were not compared."""
    tokens: tuple[int, int] | None = None
    """Prompt and completion tokens, if the answer and the record have them."""


def judged(request: ResentRequest, received: ReceivedAnswer, compare: CompareConfig) -> Judgement:
    """Compare an answer with the recorded one. Without a record, only read the tokens."""
    tokens = None if received.error else tokens_of(received.answer)
    recorded = request.recorded
    if recorded is None:
        return Judgement(tokens=tokens)
    now = received.error or str(received.status)
    status = "" if now == str(recorded.status) else f"{recorded.status} → {now}"
    tokens = tokens if recorded.usage is not None and recorded.usage.prompt_tokens else None
    if recorded.content is None or status or not received.whole:
        return Judgement(status, tokens=tokens)
    old = recorded_content(recorded.status, request, recorded.content)
    answer = received.answer
    new = content_of(answer)
    if recorded.content.streamed and answer.is_stream and request.form.wire != "oip-http":
        new = of_places(answer.status, answer.data, texts_of(answer.data))
    return Judgement(status, tuple(differences(old, new, compare)), tokens)


def recorded_content(status: int, request: ResentRequest, content: Content) -> AnswerContent:
    """The parts of a recorded answer. The record of a stream has its joined texts."""
    data = content.answer or b""
    is_stream = content.streamed and content.answer_type.startswith("text/event-stream")
    if is_stream and status < 400:
        return of_places(status, data, msgspec.json.decode(data, type=dict[str, dict[str, str]])["texts"])
    length = content.answer_headers.get(HEADER_LENGTH)
    form = request.form._replace(header_length=int(length) if length else None)
    return content_of(WholeAnswer(status, request.operation, form, content.answer_type, False, data))
