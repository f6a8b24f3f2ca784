"""Buckets of S3, Google Cloud Storage and Azure, by `obstore`.

Its own settings are variables of the environment, such as the endpoint. Credentials are made as those of a pool are,
unless the environment has a key of the storage itself, or asks for requests without a signature.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from adapters.credentials import aws_files
from adapters.credentials.aws_keys import access_key
from adapters.credentials.azure import entra_token
from adapters.credentials.google import google_token
from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.token_endpoint import TokenOutlet
from adapters.stores.source import MAX_FILES, Changed, Interrupted, StoredObject, StoreError
from config.schema.protocols.credentials import AwsCredentials, AzureCredentials, GoogleCredentials
from config.stores import StoreAddress

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

_CHUNK: Final = 1 << 20
_TIME: Final = "time "
_AZURE_SCOPE: Final = "https://storage.azure.com/.default"
_AZURE_KEYS: Final = (
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN",
)  # fmt: skip
_LIFETIME: Final = timedelta(minutes=10)
"""How long a credential without an expiry is used."""
_OUTLET: Final = TokenOutlet()


class BucketSource:
    """A folder of a bucket, or an archive in it."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._problem = ""
        """Why the last credential could not be made."""
        self._store = self._opened()

    async def items(self) -> list[StoredObject]:
        address = self._address
        try:
            if address.archive:
                meta = await obstore.head_async(self._store, address.path)
                return [self._object(meta, "")]
            listed: list[ObjectMeta] = []
            async for batch in obstore.list(self._store, address.path or None, chunk_size=1000):
                listed += batch
                if len(listed) > 2 * MAX_FILES:
                    raise StoreError(f"there are more than {MAX_FILES} files")
        except (exceptions.BaseError, OSError) as error:
            raise self._failure(error, address.label) from None
        prefix = f"{address.path}/" if address.path else ""
        folders = {
            path[:at] for meta in listed for path in [meta["path"]] for at in range(len(path)) if path[at] == "/"
        }
        return [
            self._object(meta, meta["path"].removeprefix(prefix))
            for meta in listed
            # Consoles write an empty object for each folder.
            if meta["path"].startswith(prefix) and not (meta["size"] == 0 and meta["path"] in folders)
        ]

    def _object(self, meta: ObjectMeta, path: str) -> StoredObject:
        address = self._address
        return StoredObject(path, meta["path"], _version(meta), meta["size"], address.digest, address.archive)

    async def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        options: GetOptions = {}
        if not item.version.startswith(_TIME):
            options["if_match"] = f'"{item.version}"'
        if offset:
            options["range"] = {"offset": offset}
        try:
            result = await obstore.get_async(self._store, item.key, options=options)
            if (result.meta["size"], _version(result.meta)) != (item.size, item.version):
                raise Changed(f"{item.key} has changed while it was pulled")
            async for chunk in result.stream(min_chunk_size=_CHUNK):
                yield bytes(chunk)
        except (exceptions.BaseError, OSError) as error:
            raise self._failure(error, item.key) from None

    async def aclose(self) -> None:
        return

    # ── the connection ────────────────────────────────────────────────────────────────────────────────

    def _opened(self) -> S3Store | GCSStore | AzureStore:
        scheme, bucket, environment = self._address.scheme, self._address.bucket, os.environ
        retry: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
        # The time of a whole request is that of the largest file: only silence ends one.
        client: ClientConfig = {"timeout": "7 days", "read_timeout": "60s", "connect_timeout": "30s"}
        client["allow_http"] = any("ENDPOINT" in name or "BASE_URL" in name for name in environment)
        provider: Any = None if _is_unsigned(environment, scheme) else self._provider(scheme)
        shared: dict[str, Any] = {
            "client_options": client, "retry_config": retry, "credential_provider": provider
        }  # fmt: skip
        try:
            if scheme == "s3":
                region = aws_files.region() or "us-east-1"
                if endpoint := environment.get("AWS_ENDPOINT_URL_S3"):
                    shared["endpoint"] = endpoint
                return S3Store(bucket, region=region, **shared)
            if scheme == "gs":
                return GCSStore(bucket, **shared)
            return AzureStore(bucket, **shared)
        except exceptions.BaseError as error:
            raise StoreError(f"{self._address.label}: {_text(error)}") from None

    def _provider(self, scheme: str) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        made = {"s3": _of_aws, "gs": _of_google, "az": _of_azure}[scheme]

        async def provide() -> Mapping[str, Any]:
            try:
                credential = await made()
            except RenewalError as error:
                self._problem = str(error)
                raise
            self._problem = ""
            return credential

        return provide

    def _failure(self, error: BaseException, name: str) -> StoreError:
        if isinstance(error, exceptions.PreconditionError):
            return Changed(f"{name} has changed while it was pulled")
        if self._problem:
            return StoreError(f"{name}: no credential: {self._problem}")
        text = f"{name}: {_text(error)}"
        final = (
            exceptions.NotFoundError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError,
            exceptions.InvalidPathError, exceptions.NotSupportedError,
        )  # fmt: skip
        return StoreError(text) if isinstance(error, final) else Interrupted(text)


def _version(meta: ObjectMeta) -> str:
    """The tag, without the quotes that Azure's lists leave out, or the time of the last change."""
    return (meta["e_tag"] or "").strip('"') or f"{_TIME}{meta['last_modified'].isoformat()}"


def _is_unsigned(environment: Mapping[str, str], scheme: str) -> bool:
    """Whether requests have no signature, or one with a key of the storage itself."""
    prefix = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}[scheme]
    if environment.get(f"{prefix}_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes"):
        return True
    return scheme == "az" and any(environment.get(name) for name in _AZURE_KEYS)


async def _of_aws() -> Mapping[str, Any]:
    issued = await access_key(AwsCredentials(), aws_files.region() or "us-east-1", _OUTLET)
    key = issued.value
    named = {"access_key_id": key.id, "secret_access_key": key.secret, "token": key.session_token or None}
    return {**named, "expires_at": _expiry(issued)}


async def _of_google() -> Mapping[str, Any]:
    issued = await google_token(GoogleCredentials(), _OUTLET)
    return {"token": issued.value.text, "expires_at": _expiry(issued)}


async def _of_azure() -> Mapping[str, Any]:
    issued = await entra_token(AzureCredentials(), _AZURE_SCOPE, _OUTLET)
    return {"token": issued.value, "expires_at": _expiry(issued)}


def _expiry(issued: Issued[Any]) -> datetime:
    return datetime.now(UTC) + (_LIFETIME if issued.seconds is None else timedelta(seconds=issued.seconds))


def _text(error: BaseException) -> str:
    """The first line of an error, without the query of a URL and without a server's XML: both may have a signature."""
    line = (str(error).strip() or type(error).__name__).partition("\n")[0].partition("<")[0]
    return " ".join(word.partition("?")[0] for word in line.split())[:300]
