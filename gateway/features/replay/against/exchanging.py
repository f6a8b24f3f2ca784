"""Sends one request and reads its answer."""

import asyncio
import time
from typing import NamedTuple

import aiohttp
import msgspec

from adapters.types import Form
from adapters.wire.decoding import whole_number
from gateway.features.recording.contents import HEADER_LENGTH
from gateway.features.replay.against.planned import ResentRequest
from gateway.features.shadow.answers import WholeAnswer
from gateway.telemetry.redaction.streams import events_of

MOST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are held to compare it. The rest is read and dropped."""


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
