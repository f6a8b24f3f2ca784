"""Files and results in a bucket of S3. A log is a sequence of objects, each named by its position in the log."""

import asyncio
import re
from contextlib import suppress
from types import TracebackType
from typing import Self

from config.schema.batches import S3Config
from gateway.features.batches.s3.client import S3Answer, S3Client, S3Refusal, length_of
from gateway.features.batches.storage import NoObject, StorageError

PART = 8 * 1024 * 1024
"""Bytes of one part of an upload; S3 takes 10,000 parts, of at least 5 MiB."""
_UPLOAD = re.compile(rb"<UploadId>([!-;=-~]{1,1024})</UploadId>")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


class S3Writer:
    """An object in parts. It exists when the upload is completed."""

    def __init__(self, client: S3Client, key: str) -> None:
        self._client = client
        self._key = key
        self._rest = bytearray()
        self._upload = ""
        self._etags: list[str] = []

    def write(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= PART:
            self._send_part(bytes(self._rest[:PART]))
            del self._rest[:PART]

    def commit(self) -> None:
        if not self._upload:
            self._client.send("PUT", self._key, body=bytes(self._rest))
            return
        if self._rest:
            self._send_part(bytes(self._rest))
            self._rest.clear()
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(self._etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self._client.send("POST", self._key, {"uploadId": self._upload}, body).body
        if b"CompleteMultipartUploadResult" not in answer:
            raise StorageError(f"{self._key}: the server did not complete the upload")
        self._upload = ""

    def _send_part(self, data: bytes) -> None:
        if not self._upload:
            match = _UPLOAD.search(self._client.send("POST", self._key, {"uploads": ""}).body)
            if match is None:
                raise StorageError(f"{self._key}: the server began no upload")
            self._upload = match[1].decode()
        query = {"partNumber": str(len(self._etags) + 1), "uploadId": self._upload}
        etag = self._client.send("PUT", self._key, query, data).headers.get("etag")
        if etag is None:
            raise StorageError(f"{self._key}: the server stored no part")
        self._etags.append(etag)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._upload:
            upload, self._upload = self._upload, ""
            self._client.abort(self._key, upload)


class S3Storage:
    """See `gateway.features.batches.storage.Storage`."""

    def __init__(self, storage: str, config: S3Config, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`storage` is `s3://BUCKET/PREFIX`. `loop` renews the keys that the gateway makes."""
        bucket, _, prefix = storage.removeprefix("s3://").partition("/")
        self._client = S3Client(config, bucket, loop)
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, name: str) -> S3Writer:
        return S3Writer(self._client, self._prefix + name)

    def size(self, name: str) -> int:
        size = length_of(self._client.send("HEAD", self._prefix + name).headers.get("content-length"))
        if size is None:
            raise StorageError(f"HEAD {name}: the answer has no size")
        return size

    def read(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        try:
            answer = self._client.send("GET", self._prefix + name, headers=headers)
        except S3Refusal as error:
            if error.status == 416:  # the object ends before the range
                return b""
            raise
        if answer.status != 206:  # a server that ignores ranges
            return answer.body[start : start + length]
        if len(answer.body) != length and not _ends(answer, start):
            raise StorageError(f"GET {name}: {len(answer.body)} of {length} bytes arrived")
        return answer.body

    def append(self, name: str, at: int, data: bytes) -> None:
        self._client.send("PUT", f"{self._prefix}{name}/{_part(at)}", body=data)

    def log(self, name: str) -> bytes:
        pieces, size = list[bytes](), 0
        parts = {key.rpartition("/")[2]: key for key in self._client.keys(f"{self._prefix}{name}/")}
        while (key := parts.pop(_part(size), None)) is not None:  # the others were replaced, or are not ours
            try:
                pieces.append(self._client.send("GET", key).body)
            except NoObject:
                raise StorageError(f"GET {key}: it is listed, but it is not there") from None
            size += len(pieces[-1])
        return b"".join(pieces)

    def delete(self, name: str) -> None:
        try:
            self._client.send("DELETE", self._prefix + name)
        except NoObject:
            return

    def delete_folder(self, name: str) -> None:
        for key in self._client.keys(f"{self._prefix}{name}/"):
            with suppress(NoObject):
                self._client.send("DELETE", key)


def _part(at: int) -> str:
    """The name of the part of a log that begins at a position."""
    return f"{at:015d}"


def _ends(answer: S3Answer, start: int) -> bool:
    """Whether a range of an object, from `start`, contains its end."""
    match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
    return match is not None and [int(number) for number in match.groups()] == [
        start, start + len(answer.body) - 1, start + len(answer.body),
    ]  # fmt: skip
