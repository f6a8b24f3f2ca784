"""Requests to a server of S3's protocol. Every method blocks."""

import asyncio
import http.client
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import unescape
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from adapters.credentials.sigv4 import AccessKey, SigningScope, encoded_query, signed_fields
from adapters.cursors import Cursors
from config.schema.batches import S3Config
from gateway.features.batches.s3.keys import keys_of
from gateway.features.batches.storage import NoObject, StorageError

ATTEMPTS = 3
PAUSE = 0.2
MAX_ANSWER = 64 * 1024 * 1024
MOST_PAGES = 10_000
EXPIRED = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken"})
"""The codes of errors for a key that is not valid, or no longer."""
_ERROR = re.compile(rb"\s*(<\?xml[^>]*\?>)?\s*<Error[\s>]")
_CODE = re.compile(rb"<Code>([A-Za-z0-9._-]{1,128})</Code>")
_KEY = re.compile(rb"<Key>([^<]{1,1024})</Key>")
_TOKEN = re.compile(rb"<NextContinuationToken>([^<]{1,4096})</NextContinuationToken>")


class S3Refusal(StorageError):
    """The server refuses a request, which is not repeated."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class S3Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class S3Client:
    """The objects of one bucket. Each request has its own connection: threads share the client."""

    def __init__(self, config: S3Config, bucket: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` renews the keys that the gateway makes."""
        parts = urlsplit(config.endpoint)
        self._secure = parts.scheme == "https"
        self._address = parts.netloc
        self._root = f"{parts.path.rstrip('/')}/{bucket}"
        self._keys = keys_of(config, loop)
        self._scope = SigningScope(config.region, "s3")
        self._timeout = config.timeout

    def send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> S3Answer:
        """The answer to a request, which is repeated after a failure of the server or the network.

        A server may report a failure in a body of 200. Raises `NoObject` for 404, and `StorageError` for every other
        failure.
        """
        for attempt in range(ATTEMPTS):
            signer = self._keys.get()
            try:
                answer = self._send(method, key, query or {}, body, headers or {}, signer)
            except (OSError, ValueError, http.client.HTTPException) as error:
                problem = f"{method} {key}: {type(error).__name__}: {error}"
            else:
                if answer.status == 206 or (answer.status < 300 and not _ERROR.match(answer.body)):
                    return answer
                if answer.status == 404:
                    raise NoObject(f"{key}: there is no such object")
                code = _CODE.search(answer.body)
                named = code[1].decode() if code else ""
                problem = f"{method} {key}: {answer.status} {named}".rstrip()
                if named in EXPIRED and attempt + 1 < ATTEMPTS and self._keys.replaces(signer):
                    continue
                if 400 <= answer.status < 500 and answer.status not in (408, 409, 429):
                    raise S3Refusal(problem, answer.status)
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE * 2**attempt)
        raise StorageError(problem)

    def abort(self, key: str, upload: str) -> None:
        """Discard the parts of an upload; a server that does not answer discards them by its own rules."""
        with suppress(StorageError):
            self.send("DELETE", key, {"uploadId": upload})

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys with a prefix, in their order. Raises `StorageError`, also for a list that does not end."""
        cursors, query = Cursors(MOST_PAGES), {"list-type": "2", "prefix": prefix}
        while True:
            body = self.send("GET", "", query).body
            if b"ListBucketResult" not in body:
                raise StorageError(f"GET {prefix}: the answer is no list")
            yield from (unescape(key.decode("utf-8", "replace")) for key in _KEY.findall(body))
            token = _TOKEN.search(body)
            if token is None:
                return
            if not cursors.take(token[1]):
                raise StorageError(f"GET {prefix}: the list does not end")
            query["continuation-token"] = unescape(token[1].decode("utf-8", "replace"))

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
        signer: AccessKey,
    ) -> S3Answer:
        path = quote(f"{self._root}/{key}" if key else self._root)
        target = f"{path}?{encoded_query(query.items())}" if query else path
        own = [("host", self._address)]
        signed = signed_fields(signer, self._scope, method, target, own, body, time.time(), states_hash=True)
        fields = {**headers, **dict(own), **dict(signed), "content-length": str(len(body))}
        connection = self._connection()
        try:
            connection.request(method, target, body or None, fields)
            response = connection.getresponse()
            data = response.read(MAX_ANSWER + 1)
            if len(data) > MAX_ANSWER:
                raise StorageError(f"{method} {key}: the answer is longer than {MAX_ANSWER} bytes")
            expected = length_of(response.getheader("content-length"))
            if method != "HEAD" and expected is not None and len(data) != expected:
                raise http.client.IncompleteRead(data, expected - len(data))
            return S3Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, data)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._address, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(self._address, timeout=self._timeout)


def length_of(value: str | None) -> int | None:
    """The number of bytes that a field states; None for anything else."""
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,18}", value) else None
