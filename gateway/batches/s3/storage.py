"""Files and results in a bucket of S3. A log is a sequence of objects, each named by its position in the log."""

import re
from types import TracebackType
from typing import Self

from config.schema.batches.batches import S3Config
from gateway.batches.s3.client import S3Client, S3Refusal
from gateway.batches.storage import NoObject, StorageError

PART = 8 * 1024 * 1024
"""Bytes of one part of an upload; S3 takes 10,000 parts, of at least 5 MiB."""
_UPLOAD = re.compile(rb"<UploadId>([^<]{1,1024})</UploadId>")


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
        self._client.send("POST", self._key, {"uploadId": self._upload}, body)
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
    """See `gateway.batches.storage.Storage`."""

    def __init__(self, storage: str, config: S3Config) -> None:
        """`storage` is `s3://BUCKET/PREFIX`."""
        bucket, _, prefix = storage.removeprefix("s3://").partition("/")
        self._client = S3Client(config, bucket)
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, name: str) -> S3Writer:
        return S3Writer(self._client, self._prefix + name)

    def size(self, name: str) -> int:
        return int(self._client.send("HEAD", self._prefix + name).headers.get("content-length", "0"))

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
        return answer.body

    def append(self, name: str, at: int, data: bytes) -> None:
        self._client.send("PUT", f"{self._prefix}{name}/{at:015d}", body=data)

    def log(self, name: str) -> bytes:
        pieces, size = list[bytes](), 0
        for key in self._client.keys(f"{self._prefix}{name}/"):
            if int(key.rpartition("/")[2]) != size:
                break  # a part that a later write has replaced
            pieces.append(self._client.send("GET", key).body)
            size += len(pieces[-1])
        return b"".join(pieces)

    def delete(self, name: str) -> None:
        try:
            self._client.send("DELETE", self._prefix + name)
        except NoObject:
            return

    def delete_folder(self, name: str) -> None:
        for key in self._client.keys(f"{self._prefix}{name}/"):
            self._client.send("DELETE", key)
