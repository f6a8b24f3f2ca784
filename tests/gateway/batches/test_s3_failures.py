"""Answers of S3 servers that are cut, wrong or late are failures, and brief ones are repeated."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from config.schema.batches.batches import S3Config
from gateway.batches.s3 import client as s3_client
from gateway.batches.s3.client import ATTEMPTS
from gateway.batches.s3.signature import S3Credentials, signed_headers
from gateway.batches.s3.storage import S3Storage
from gateway.batches.storage import NoObject, StorageError


@contextmanager
def scripted(answers: list[bytes]) -> Iterator[tuple[S3Storage, list[bytes]]]:
    """A storage on a server that sends each answer once, and closes the connection. The heads of the requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    received = list[bytes]()

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = S3Config(endpoint=endpoint, key_id=SecretStr("id"), secret=SecretStr("secret"))
    try:
        yield S3Storage("s3://bucket/prefix", config), received
        thread.join(60)
        assert len(received) == len(answers)
    finally:
        listener.close()


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "PAUSE", 0.0)


@pytest.mark.parametrize("cut", [0, 1, 4, 9])
def test_half_an_answer_is_a_failure(cut: int) -> None:
    half = answer(b"0123456789"[:cut], "206 Partial Content", 10)
    with scripted([half] * ATTEMPTS) as (storage, _), pytest.raises(StorageError, match="IncompleteRead"):
        storage.read("files/a", 0, 10)
    with scripted([half, answer(b"0123456789", "206 Partial Content")]) as (storage, received):
        assert storage.read("files/a", 0, 10) == b"0123456789"
    assert b"GET /bucket/prefix/files/a HTTP/1.1" in received[0]


@pytest.mark.parametrize("wrong", [b"", b"garbage\r\n\r\n", answer(b"", "500 Internal")])
def test_a_brief_failure_is_repeated_and_a_long_one_reported(wrong: bytes) -> None:
    with scripted([wrong, wrong, answer(b"")]) as (storage, _):
        storage.append("batches/x/0.1.log", 0, b"data")
    with scripted([wrong] * ATTEMPTS) as (storage, _), pytest.raises(StorageError):
        storage.append("batches/x/0.1.log", 0, b"data")


def test_refusals_are_not_repeated() -> None:
    denied = answer(b"<Error><Code>AccessDenied</Code></Error>", "403 Forbidden")
    with scripted([denied]) as (storage, _), pytest.raises(StorageError, match="AccessDenied"):
        storage.append("a", 0, b"data")
    with scripted([answer(b"", "404 Not Found")]) as (storage, _), pytest.raises(NoObject):
        storage.size("a")


def test_an_upload_that_fails_in_a_body_of_200_does_not_exist() -> None:
    begun = answer(b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
    part = b'HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 0\r\n\r\n'
    failed = answer(b"<Error><Code>InternalError</Code></Error>")
    answers = [begun, part, part, *[failed] * ATTEMPTS, answer(b"", "204 No Content")]
    with scripted_uploads(answers) as storage, storage.create("files/a") as writer:
        writer.write(bytes((8 << 20) + 1))
        with pytest.raises(StorageError, match="InternalError"):
            writer.commit()


@contextmanager
def scripted_uploads(answers: list[bytes]) -> Iterator[S3Storage]:
    """Like `scripted`, for requests with large bodies, which are read whole."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for each in answers:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                length = 0
                while (line := file.readline()) not in (b"\r\n", b""):
                    name, _, value = line.lower().partition(b":")
                    length = int(value) if name == b"content-length" else length
                file.read(length)
                connection.sendall(each)

    thread = threading.Thread(target=serve)
    thread.start()
    config = S3Config(
        endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", key_id=SecretStr("id"), secret=SecretStr("secret")
    )
    try:
        yield S3Storage("s3://bucket", config)
        thread.join(60)
        assert not thread.is_alive(), "the upload was not discarded"
    finally:
        listener.close()


def test_the_signature_is_that_of_amazons_example() -> None:
    """GET Bucket Lifecycle, of "Examples: Signature Calculations" in the reference of S3."""
    credentials = S3Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
    host = "examplebucket.s3.amazonaws.com"
    headers = signed_headers(credentials, "GET", host, "/", {"lifecycle": ""}, b"", 1369353600.0)
    expected = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    assert headers["authorization"].endswith(f"Signature={expected}")
