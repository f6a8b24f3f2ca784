"""Texts that break parsers, at every place of a JSON body, and a server that fails on what Python cannot decode."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from adapters.http1.message import Request, Response

JSON_TEXTS = {
    "NUL": b'"a\\u0000b"',
    "digits of other scripts": '"²٣"'.encode(),
    "half of a surrogate pair": b'"\\ud800x"',
    "10,000 digits in a text": b'"%b"' % (b"9" * 10_000),
}
"""Values of valid JSON, which no door must refuse but where it reads them."""
NO_JSON = {
    "not UTF-8": b'"a\xffb"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "a number of 10,000 digits": b"9" * 10_000,
    "a fraction of 10,000 digits": b"0." + b"9" * 10_000,
    "20,000 levels": b"[" * 20_000 + b"]" * 20_000,
}
"""Values that not every server can decode."""
URL_TEXTS = ("a%00b", "%ff", "%ed%a0%80", "%C2%B2", "%D9%A3", "9" * 5_000, "0" * 25 + "1", "[" * 2_000)
_MARK = "@@"


def bodies(sample: Any, fields: Iterable[str] = ()) -> Iterator[tuple[str, bytes, bytes]]:
    """Each place of a sample, and each of these fields beside it, as its name and the bytes before and after it."""
    samples = [(name, {**sample, name: _MARK}) for name in sorted(fields)]
    for name, marked in (*samples, *_marked(sample, "$")):
        before, _, after = json.dumps(marked).encode().partition(f'"{_MARK}"'.encode())
        yield name, before, after


def _marked(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            for where, marked in _marked(inner, f"{at}.{name}"):
                yield where, {**value, name: marked}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for where, marked in _marked(inner, f"{at}[{index}]"):
                yield where, [*value[:index], marked, *value[index + 1 :]]
    yield at, _MARK


class StrictServer:
    """A server in Python: it answers any request, and fails if its parser does."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = Response(200, [("content-type", "application/json")], json.dumps(answer).encode())
        self.received: list[bytes] = []
        self.failures: list[bytes] = []

    async def __call__(self, http: Request) -> Response:
        body = await http.read()
        self.received.append(body)
        try:
            json.dumps(json.loads(body or b"{}"), ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            self.failures.append(body)
            return Response(500)
        return self._answer
