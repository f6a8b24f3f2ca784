"""Sends one request, reads its answer, and compares it with the recorded one."""

import asyncio
import time
from typing import NamedTuple

import aiohttp
import msgspec

from adapters.types import Form
from adapters.wire.decoding import whole_number
from config.schema.config import CompareConfig
from gateway.features.recording.contents import HEADER_LENGTH
from gateway.features.recording.entries import Content, Usages
from gateway.features.shadow.answers import WholeAnswer, content_of, of_places
from gateway.telemetry.redaction.streams import events_of, texts_of
from policies.comparison.answers import AnswerContent
from policies.comparison.differences import differences

MOST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are held to compare it. The rest is read and dropped."""


class RecordedResult(NamedTuple):
    """The recorded result of a request. Times are seconds since its arrival."""

    status: int
    end: float
    first_byte: float | None = None
    usage: Usages | None = None
    content: Content | None = None
    """The content with an answer that can be compared; None without one."""


class ResentRequest(NamedTuple):
    """A request to send."""

    due: float
    """Seconds after the first request."""
    path: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"
    operation: str = "chat"
    form: Form = Form()
    """The wire format of its answer."""
    recorded: RecordedResult | None = None
    """None for a request of a trace."""


class ReceivedAnswer(NamedTuple):
    """An answer, read to its end. Times are monotonic seconds."""

    status: int
    first_byte: float
    end: float
    answer: WholeAnswer
    whole: bool = True
    """Whether `answer` has every byte."""
    error: str = ""
    """The name of the failure of the connection; empty for an answer."""


class ReplayTarget:
    """A gateway or server to which requests are sent, with the own key of this replay.

    Redirections are not followed and cookies are not stored, so that the key reaches no other host.
    """

    def __init__(self, url: str, key: str | None, seconds: float) -> None:
        self._url = url.rstrip("/")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def send(self, request: ResentRequest) -> ReceivedAnswer:
        """Send a request and read its answer. A failure of the connection is an answer with `error`."""
        first, status = 0.0, 0
        try:
            async with self._http.request(
                request.method,
                self._url + request.path,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                status, pieces, size = response.status, list[bytes](), 0
                async for piece in response.content.iter_any():
                    first = first or time.monotonic()
                    size += len(piece)
                    if size <= MOST_ANSWER:
                        pieces.append(piece)
                end = time.monotonic()
                kind = response.headers.get("content-type", "")
                length = whole_number(response.headers.get(HEADER_LENGTH, ""))
                form = request.form._replace(header_length=length)
                is_stream = kind.startswith("text/event-stream")
                answer = WholeAnswer(status, request.operation, form, kind, is_stream, b"".join(pieces))
                return ReceivedAnswer(status, first or end, end, answer, size <= MOST_ANSWER)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            end = time.monotonic()
            name = "timeout" if isinstance(error, asyncio.TimeoutError) else type(error).__name__
            return ReceivedAnswer(status, first or end, end, WholeAnswer(status, form=Form()), False, name)


class TokenCounts(msgspec.Struct):
    """The usage in an answer of OpenAI's APIs or Anthropic's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Inner(msgspec.Struct):
    usage: TokenCounts | None = None


class _Body(msgspec.Struct):
    usage: TokenCounts | None = None
    message: _Inner | None = None
    response: _Inner | None = None


def tokens_of(answer: WholeAnswer) -> tuple[int, int] | None:
    """Prompt and completion tokens of an answer; None if it does not have both."""
    prompt: int | None = None
    completion: int | None = None
    try:
        bodies = list(events_of(answer.data)) if answer.is_stream else [msgspec.json.decode(answer.data)]
        for body in bodies:
            decoded = msgspec.convert(body, _Body)
            for part in (decoded, decoded.message, decoded.response):
                if part is not None and (usage := part.usage) is not None:
                    prompt = usage.prompt_tokens or usage.input_tokens or prompt
                    completion = usage.completion_tokens or usage.output_tokens or completion
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if prompt is None else (prompt, completion or 0)


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
