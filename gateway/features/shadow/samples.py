"""The redacted texts of a differing copy. Runs in a worker process."""

from typing import NamedTuple

from gateway.features.recording.contents import AnswerPart, ResendSource, Settings, redacted
from gateway.features.shadow.answers import WholeAnswer

MOST_TEXT = 2000
"""Signs of each text."""
_NO_DIGEST = b"sample"
"""The key of digests, which a sample has not."""


class SampledTexts(NamedTuple):
    """A request and both answers, redacted and cut."""

    request: str
    primary: str
    shadow: str


def sampled_texts(
    source: ResendSource, first: WholeAnswer, second: WholeAnswer, redact: tuple[str, ...]
) -> SampledTexts:
    """Redact a request and its answers as a record, then cut them."""
    settings = Settings(redact, _NO_DIGEST, digest_only=False)
    contents = [redacted(source, _part(answer), settings) for answer in (first, second)]
    one, other = (_text(content.answer or b"", answer.form.header_length)
                  for content, answer in zip(contents, (first, second), strict=True))  # fmt: skip
    return SampledTexts(_text(contents[0].body, source.head), one, other)


def _part(answer: WholeAnswer) -> AnswerPart:
    is_events = answer.is_stream and answer.content_type.startswith("text/event-stream")
    binary = answer.form.wire in ("oip-grpc", "tfserving-grpc") or answer.form.encoding
    head = 0 if binary else answer.form.header_length
    return AnswerPart(answer.data, answer.content_type, head, answer.is_stream, is_events)


def _text(data: bytes, head: int | None) -> str:
    """The begin of a text. Of binary tensors only their description."""
    text = data[: head if head is not None else 4 * MOST_TEXT].decode(errors="replace")
    return text[:MOST_TEXT] + ("…" if len(text) > MOST_TEXT else "")
