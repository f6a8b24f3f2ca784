"""Answers of S3 servers that are cut, wrong or late are failures, and brief ones are repeated."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from adapters.credentials import making
from adapters.credentials.sigv4 import AccessKey
from config.schema.batches import S3Config, S3Credentials
from config.schema.protocols.credentials import AwsCredentials
from gateway.features.batches.s3 import client as s3_client
from gateway.features.batches.s3.client import ATTEMPTS, S3Answer
from gateway.features.batches.s3.keys import MadeKeys, keys_of
from gateway.features.batches.s3.storage import S3Storage
from gateway.features.batches.storage import NoObject, StorageError
from tests.support.bad_answers import DEEP, DIGITS


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


@pytest.fixture(autouse=True, scope="module")
def _no_pause() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_client, "PAUSE", 0.0)
        yield


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


ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code></Error>'
MIB8 = bytes(8 << 20)


def listed(*keys: bytes, token: bytes = b"") -> bytes:
    more = b"<NextContinuationToken>%b</NextContinuationToken>" % token if token else b""
    return b"<ListBucketResult>%b%b</ListBucketResult>" % (b"".join(b"<Key>%b</Key>" % key for key in keys), more)


class Canned:
    """A storage whose server answers as `answer` decides. `sent`: the methods of the requests."""

    def __init__(self, answer: Callable[[str, str, Mapping[str, str]], S3Answer]) -> None:
        config = S3Config(endpoint="http://127.0.0.1:9", key_id=SecretStr("id"), secret=SecretStr("secret"))
        self.storage = S3Storage("s3://bucket", config)
        self.sent: list[str] = []

        def send(method: str, key: str, query: Mapping[str, str], *_: Any, **__: Any) -> S3Answer:
            self.sent.append(method)
            return answer(method, key, query)

        self.storage._client._send = send  # type: ignore[method-assign]

    def upload(self, data: bytes) -> None:
        with self.storage.create("files/a") as writer:
            writer.write(data)
            writer.commit()


OPERATIONS: list[Callable[[Canned], object]] = [
    lambda it: it.storage.size("files/a"),
    lambda it: it.storage.read("files/a", 5, 10),
    lambda it: it.storage.append("batches/x/0.1.log", 0, b"data"),
    lambda it: it.storage.log("batches/x/0.1.log"),
    lambda it: it.storage.delete("files/a"),
    lambda it: it.storage.delete_folder("batches/x"),
    lambda it: it.upload(b"data"),
    lambda it: it.upload(MIB8),
]
TEXTS = st.sampled_from([
    b"", ERROR, b"<Error><Code>\xff</Code></Error>", b"<Code>\xff</Code>", listed(), listed(b"batches/x/0.1.log/end"),
    listed(b"\xff", b"/%b" % DIGITS, b"batches/x/0.1.log/000000000000000", token=b"same"), listed(token=b"\xff"),
    b"<UploadId>\xff</UploadId>", b"<UploadId>u</UploadId>", b"<CompleteMultipartUploadResult/>", DEEP, b"0123456789",
]) | st.binary(max_size=20)  # fmt: skip
FIELDS = st.fixed_dictionaries({}, optional={
    "content-length": st.sampled_from(["\N{SUPERSCRIPT TWO}", "-1", DIGITS.decode(), "7", ""]),
    "content-range": st.sampled_from(["bytes 5-9/10", "bytes 5-14/99", f"bytes 5-{DIGITS.decode()}/*", "x"]),
    "etag": st.sampled_from(["", "e", "<e>"]),
})  # fmt: skip
ANSWERS = st.builds(S3Answer, st.sampled_from([200, 200, 200, 204, 206, 301, 403, 404, 416, 500]), FIELDS, TEXTS)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
@given(answers=st.lists(ANSWERS, min_size=1, max_size=4))
def test_any_answers_are_a_result_or_a_failure_of_the_storage(number: int, answers: list[S3Answer]) -> None:
    it = Canned(lambda *_: answers[min(len(it.sent), len(answers)) - 1])
    with suppress(StorageError):
        OPERATIONS[number](it)
    assert len(it.sent) <= 4 * ATTEMPTS


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6, 7])
def test_a_failure_in_a_body_of_200_is_one_also_after_good_answers(number: int) -> None:
    """A part of an upload has begun, or a list has been sent, before the failure."""
    good = [b"<UploadId>u</UploadId>", listed(b"batches/x/0.1.log/000000000000000")]
    for begins in (0, 1):

        def answer(method: str, key: str, query: Mapping[str, str]) -> S3Answer:
            first = len(it.sent) <= begins  # noqa: B023
            return S3Answer(200, {"etag": "e"}, good[method == "GET"] if first and number in (3, 5, 7) else ERROR)

        it = Canned(answer)
        with pytest.raises(StorageError, match="200 SlowDown"):
            OPERATIONS[number](it)


def test_a_range_that_is_shorter_than_its_object_is_a_failure() -> None:
    for field, body in (("bytes 5-9/10", b"56789"), ("bytes 5-14/15", b"0123456789")):
        it = Canned(lambda *_: S3Answer(206, {"content-range": field}, body))  # noqa: B023
        assert it.storage.read("files/a", 5, 10) == body
    for field in ("bytes 5-9/15", "bytes 0-4/5", "bytes 5-9/*", "bytes 5-14/10", ""):
        it = Canned(lambda *_: S3Answer(206, {"content-range": field}, b"56789"))  # noqa: B023
        with pytest.raises(StorageError, match="5 of 10 bytes"):
            it.storage.read("files/a", 5, 10)


def test_a_list_that_does_not_end_is_a_failure_and_foreign_keys_are_ignored() -> None:
    for tokens in ([b"same"], [b"a", b"b"]):
        it = Canned(lambda *_: S3Answer(200, {}, listed(b"k", token=tokens[len(it.sent) % len(tokens)])))  # noqa: B023
        with pytest.raises(StorageError, match="does not end"):
            it.storage.log("batches/x/0.1.log")
        assert len(it.sent) <= 3

    first, second = (b"batches/x/0.1.log/%015d" % at for at in (0, 4))
    keys = listed(first, b"batches/x/0.1.log/0", b"batches/x/0.1.log/README", b"\xff", second)
    it = Canned(lambda _, key, query: S3Answer(200, {}, keys if query else key[-4:].encode()))
    assert it.storage.log("batches/x/0.1.log") == b"00000004"


# ── keys that the gateway makes ───────────────────────────────────────────────────────────────────────────

OLD, NEW = AccessKey("AKIDOLD", "old", "token-of-old"), AccessKey("AKIDNEW", "new")


class TwoKeys:
    """A key that the server refuses, and its successor."""

    def __init__(self, *, has_another: bool) -> None:
        self.key, self._has_another = OLD, has_another

    def get(self) -> AccessKey:
        return self.key

    def replaces(self, key: AccessKey) -> bool:
        assert key == OLD
        self.key = NEW if self._has_another else OLD
        return self._has_another


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken"])
def test_a_request_is_signed_again_if_its_key_has_ended(code: str) -> None:
    refusal = answer(f"<Error><Code>{code}</Code></Error>".encode(), "400 Bad Request")
    with scripted([refusal, answer(b"")]) as (storage, received):
        storage._client._keys = TwoKeys(has_another=True)
        storage.append("log", 0, b"a")
    assert b"Credential=AKIDOLD/" in received[0]
    assert b"x-amz-security-token: token-of-old" in received[0]
    assert b"Credential=AKIDNEW/" in received[1]
    assert b"x-amz-security-token" not in received[1]
    with scripted([refusal]) as (storage, _):
        storage._client._keys = TwoKeys(has_another=False)
        with pytest.raises(StorageError, match=code):
            storage.append("log", 0, b"a")


@pytest.mark.realtime
async def test_threads_have_the_keys_of_a_source_that_the_event_loop_renews() -> None:
    aws = AwsCredentials(key_id=SecretStr("AKID"), secret=SecretStr("a-secret"), session_token=SecretStr("FwoG"))
    config = S3Config(endpoint="http://127.0.0.1:9", credentials=S3Credentials(aws=aws))
    keys, loop = keys_of(config, asyncio.get_running_loop()), asyncio.get_running_loop()
    assert await asyncio.to_thread(keys.get) == AccessKey("AKID", "a-secret", "FwoG")
    assert making.access_keys(aws, config.region).valid is not None  # a pool with the same source has its key
    assert not await asyncio.to_thread(keys.replaces, AccessKey("AKID", "a-secret", "FwoG"))  # it is too new
    assert isinstance(keys_of(config, loop), MadeKeys)


@pytest.mark.realtime
async def test_a_storage_without_a_key_reports_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    credentials = S3Credentials(aws=AwsCredentials(profile="absent"))
    config = S3Config(endpoint="http://127.0.0.1:9", credentials=credentials)
    storage = S3Storage("s3://bucket", config, asyncio.get_running_loop())
    with pytest.raises(StorageError, match="no file has the profile absent"):
        await asyncio.to_thread(storage.log, "a")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "needs one credential"),
        ({"key_id": "a"}, "two parts"),
        ({"key_id": "a", "secret": "b", "credentials": {"aws": {}}}, "needs one credential"),
        ({"credentials": {"aws": {"region": "eu-west-1"}}}, "the `region` of `s3`"),
        ({"credentials": {"google": {}}}, "credentials"),
    ],
)
def test_a_bucket_has_one_credential_of_aws(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        S3Config.model_validate({"endpoint": "http://127.0.0.1:9", **fields})
