"""The request that every target receives, and the checks of its response against the upstream's."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from types import MappingProxyType
from typing import NamedTuple

PATH = "/v1/chat/completions"
MODEL = "mock"
NO_KEY = "sk-this-server-checks-none-0123456789abcdefghijklmnopqrstu"  # so that all requests weigh alike
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_SYSTEM = (
    "You are a careful assistant for the operations team of a mid-sized company. Answer in plain "
    "sentences, name your sources, and say so when you do not know."
)
_QUESTION = (
    "Our nightly export ran for four hours instead of forty minutes, its log shows three retries against "
    "the warehouse and one time-out while the index was rebuilt. Which of these is the likely cause, what "
    "should we look at first, and how would we tell the difference between a slow disk and a lock that "
    "another job was holding? Keep it to one short paragraph, please."
)


class CheckError(Exception):
    """A server changes answers or accepts invalid keys, so its figures would compare different work."""


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


def chat_body(*, stream: bool) -> bytes:
    """The JSON body of the benchmark's request, about 700 bytes."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 64, "stream": stream}).encode()


def http_request(body: bytes, key: str, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
    """The whole HTTP/1.1 request, as ``load.c`` sends it."""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key or NO_KEY}\r\nContent-Length: {len(body)}\r\n"
    )
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{head}{more}\r\n".encode() + body


def post(port: int, key: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Sends one request on a connection of its own.

    Raises:
        OSError, http.client.HTTPException: no answer, or no HTTP.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        always = {"Content-Type": "application/json", "Authorization": f"Bearer {key or NO_KEY}"}
        connection.request("POST", PATH, body, {**always, **headers})
        response = connection.getresponse()
        return Reply(response.status, response.read())
    finally:
        connection.close()


def check_answer(
    port: int, key: str, expected: bytes, *, verbatim: bool, headers: Mapping[str, str] = NO_HEADERS
) -> None:
    """Compares an answer with the upstream's own.

    Raises:
        CheckError: the answers differ.
    """
    reply = post(port, key, chat_body(stream=False), headers)
    same = reply.body == expected if verbatim else is_equivalent(reply.body, expected)
    if reply.status != 200 or not same:
        raise CheckError(f"answers {reply.status} {reply.body[:200]!r}, the upstream {expected[:200]!r}")


def check_refusal(port: int, key: str, status: int) -> None:
    """Sends a key that differs from a valid key in its end.

    Raises:
        CheckError: the answer has another status.
    """
    reply = post(port, key[:-4] + ("zzzz" if not key.endswith("zzzz") else "yyyy"), chat_body(stream=False))
    if reply.status != status:
        raise CheckError(f"answers {reply.status} to a wrong key, expected {status}")


def is_equivalent(body: bytes, expected: bytes) -> bool:
    """Whether two chat completions hold the same text and token counts, however they are written."""
    return _gist(body) == _gist(expected)


def _gist(body: bytes) -> tuple[str, int, int] | None:
    try:
        answer = json.loads(body)
        usage = answer["usage"]
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
