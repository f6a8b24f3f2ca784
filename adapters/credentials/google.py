"""Access tokens for Google Cloud."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import jwt
import msgspec

from adapters.credentials.google_federation import IAM, LIFETIME, federated_token, impersonated
from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.token_endpoint import (
    FORM,
    MACHINE,
    TokenOutlet,
    form,
    issued_token,
    object_of,
    read_text,
    text_in,
)
from config.schema.protocols.credentials import GoogleCredentials

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ISSUER = "https://oauth2.googleapis.com/token"
GCLOUD_FILE = "~/.config/gcloud/application_default_credentials.json"
_encode = msgspec.json.Encoder().encode


class GoogleToken(NamedTuple):
    """An access token, and the project that is charged for its requests; empty for the account's own."""

    text: str
    project: str

    def __repr__(self) -> str:
        return "GoogleToken()"


def fields_of(token: GoogleToken) -> list[tuple[str, str]]:
    """The header fields of a token."""
    project = [("x-goog-user-project", token.project)] if token.project else []
    return [("authorization", f"Bearer {token.text}"), *project]


async def google_token(config: GoogleCredentials, outlet: TokenOutlet) -> Issued[GoogleToken]:
    """Request a token. Raises `RenewalError`."""
    info = await asyncio.to_thread(_file, config)
    scopes = " ".join(config.scopes)
    issued = await (of_metadata(config.scopes) if info is None else of_file(info, scopes, outlet))
    project = config.quota_project or (info or {}).get("quota_project_id") or ""
    if not isinstance(project, str) or not project.isascii() or not project.isprintable():
        raise RenewalError("the file's quota_project_id is not a project's id")
    return Issued(GoogleToken(issued.value, project), issued.seconds)


def _file(config: GoogleCredentials) -> dict[str, Any] | None:
    """The content of the file of the section, or of the first that Google's libraries find; None for none."""
    if config.key is not None:
        return object_of(config.key.get_secret_value(), "the key of Google")
    path = config.file or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if not path:
        folder = os.environ.get("CLOUDSDK_CONFIG")
        path = f"{folder}/{os.path.basename(GCLOUD_FILE)}" if folder else os.path.expanduser(GCLOUD_FILE)
        if not os.path.exists(path):
            return None
    return object_of(read_text(path, "the file"), path)


async def of_file(info: Mapping[str, Any], scopes: str, outlet: TokenOutlet) -> Issued[str]:
    """The token of a file's account. Raises `RenewalError`."""
    kind = info.get("type")
    if kind == "service_account":
        return await _of_service_account(info, scopes, outlet)
    if kind == "external_account":
        return await federated_token(info, scopes, outlet)
    if kind == "authorized_user":
        return await _of_user(info, outlet)
    if kind == "impersonated_service_account":
        source = info.get("source_credentials")
        if not isinstance(source, dict) or source.get("type") == kind:
            raise RenewalError("the impersonated account has no source_credentials")
        token = await of_file(source, IAM, outlet)
        url, delegates = text_in(info, "service_account_impersonation_url", "the file"), info.get("delegates")
        return await impersonated(url, token.value, scopes, delegates, LIFETIME, outlet)
    raise RenewalError(f"the file's type {str(kind)[:40]!r} is not supported")


async def _of_service_account(info: Mapping[str, Any], scopes: str, outlet: TokenOutlet) -> Issued[str]:
    url = info.get("token_uri") or ISSUER
    body = form({"assertion": assertion(info, scopes, time.time()), "grant_type": GRANT})
    return issued_token(await outlet.fetch_json("POST", url, [FORM], body), urlsplit(url).netloc)


def assertion(info: Mapping[str, Any], scopes: str, now: float) -> str:
    """The signed statement of a service account, by which a token is issued. Raises `RenewalError`."""
    issued_at = int(now)
    claims = {
        "iat": issued_at,
        "exp": issued_at + LIFETIME,
        "iss": text_in(info, "client_email", "the file"),
        # The audience is Google's, whichever address the token is requested from.
        "aud": ISSUER,
        "scope": scopes,
    }
    headers = {"kid": info["private_key_id"]} if info.get("private_key_id") else None
    try:
        return jwt.encode(claims, text_in(info, "private_key", "the file"), algorithm="RS256", headers=headers)
    except (ValueError, TypeError, jwt.PyJWTError):  # their messages may have a part of the key
        raise RenewalError("the file's private_key is not a private key of RSA") from None


async def _of_user(info: Mapping[str, Any], outlet: TokenOutlet) -> Issued[str]:
    url = info.get("token_uri") or ISSUER
    names = "client_id", "client_secret", "refresh_token"
    values = {"grant_type": "refresh_token", **{name: text_in(info, name, "the file") for name in names}}
    return issued_token(await outlet.fetch_json("POST", url, [FORM], form(values)), urlsplit(url).netloc)


async def of_metadata(scopes: tuple[str, ...]) -> Issued[str]:
    """The token of the machine's service account. Raises `RenewalError`."""
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_ROOT") or "metadata.google.internal"
    query = urlencode({"scopes": ",".join(scopes)}, quote_via=quote)
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token?{query}"
    try:
        return issued_token(await MACHINE.fetch_json("GET", url, [("metadata-flavor", "Google")]), host)
    except RenewalError as error:
        raise RenewalError(f"there is no file of an account, nor the machine's account: {error}") from None
