"""Workload identity federation: the token of another issuer, exchanged for one of Google (RFC 8693).

Also the tokens of service accounts that the owner of a token may impersonate.
"""

import asyncio
import os
import shlex
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from adapters.credentials import aws_files, aws_keys
from adapters.credentials.aws_services import region_of_instance
from adapters.credentials.command import run
from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.sigv4 import SigningScope, signed_fields
from adapters.credentials.token_endpoint import (
    FORM,
    JSON,
    MACHINE,
    TokenOutlet,
    form,
    issued_token,
    object_of,
    read_text,
    seconds_until,
    text_in,
    token_text,
)
from adapters.http1.proxy import is_internal
from config.schema.protocols.credentials import AwsCredentials

LIFETIME = 3600
"""Seconds of a token's assertion: Google accepts no longer one."""
IAM = "https://www.googleapis.com/auth/iam"
"""The scope of tokens for the impersonation of accounts."""
STS_URL = "https://sts.googleapis.com/v1/token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
REQUESTED = "urn:ietf:params:oauth:token-type:access_token"
FILE = "the file"
_encode = msgspec.json.Encoder().encode


async def federated_token(info: Mapping[str, Any], scopes: str, outlet: TokenOutlet) -> Issued[str]:
    """The token of an `external_account`, and of the service account that it impersonates. Raises `RenewalError`."""
    impersonation = info.get("service_account_impersonation_url")
    url, fields = info.get("token_url") or STS_URL, [FORM]
    values = {
        "grant_type": GRANT,
        "audience": text_in(info, "audience", FILE),
        "requested_token_type": REQUESTED,
        "subject_token": await _subject_token(info, outlet),
        "subject_token_type": text_in(info, "subject_token_type", FILE),
        "scope": IAM if impersonation else scopes,
    }
    if (client := info.get("client_id")) and (secret := info.get("client_secret")):
        fields.append(("authorization", f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}"))
    elif project := info.get("workforce_pool_user_project"):
        values["options"] = quote(_encode({"userProject": project}).decode())
    issued = issued_token(await outlet.fetch_json("POST", url, fields, form(values)), urlsplit(url).netloc)
    if not impersonation:
        return issued
    settings = info.get("service_account_impersonation")
    seconds = settings.get("token_lifetime_seconds") if isinstance(settings, dict) else None
    seconds = seconds if isinstance(seconds, int) else LIFETIME
    return await impersonated(impersonation, issued.value, scopes, None, seconds, outlet)


async def _subject_token(info: Mapping[str, Any], outlet: TokenOutlet) -> str:
    """The token of the other issuer."""
    source = info.get("credential_source")
    if not isinstance(source, dict):
        raise RenewalError("the file has no credential_source")
    if str(source.get("environment_id", "")).startswith("aws"):
        return await _aws_token(info, source, outlet)
    if file := source.get("file"):
        text = await asyncio.to_thread(read_text, str(file), "the token")
    elif url := source.get("url"):
        fields = [(str(name), str(value)) for name, value in (source.get("headers") or {}).items()]
        if is_internal(urlsplit(str(url)).hostname or ""):  # such as a machine's metadata: no proxy can reach it
            outlet = outlet._replace(proxy=MACHINE.proxy)
        text = (await outlet.fetch("GET", str(url), fields)).decode("utf-8", "replace").strip()
    elif isinstance(program := source.get("executable"), dict):
        return await _printed_token(info, program)
    else:
        raise RenewalError("the file's credential_source is none of file, url, executable and aws")
    form_ = source.get("format") or {}
    if form_.get("type", "text") == "json":
        return text_in(object_of(text, "the token"), str(form_.get("subject_token_field_name")), "the token")
    return text


async def _printed_token(info: Mapping[str, Any], program: Mapping[str, Any]) -> str:
    """The token that a program prints. Google requires a permission in the environment."""
    if os.environ.get("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES") != "1":
        raise RenewalError("the file names a program: permit it by GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES=1")
    try:
        command = tuple(shlex.split(str(program.get("command", ""))))
    except ValueError:
        command = ()
    if not command:
        raise RenewalError("the file's executable has no command")
    milliseconds = program.get("timeout_millis")
    seconds = milliseconds / 1000 if isinstance(milliseconds, int) else 30.0
    name = os.path.basename(command[0])
    variables = {
        "GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE": text_in(info, "audience", FILE),
        "GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE": text_in(info, "subject_token_type", FILE),
        "GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE": "0",
    }
    answer = object_of(await run(command, seconds, variables), name)
    if answer.get("success") is not True:
        raise RenewalError(f"{name}: it reports no success")
    is_saml = str(answer.get("token_type")).endswith(":saml2")
    return text_in(answer, "saml_response" if is_saml else "id_token", name)


async def _aws_token(info: Mapping[str, Any], source: Mapping[str, Any], outlet: TokenOutlet) -> str:
    """A signed request to AWS, which proves the identity of an access key."""
    region = await asyncio.to_thread(aws_files.region)
    if region is None:
        if not (zone_url := source.get("region_url")):
            raise RenewalError("the region of AWS is unknown: set AWS_REGION")
        token_url = source.get("imdsv2_session_token_url")
        region = await region_of_instance(str(zone_url), None if token_url is None else str(token_url))
    key = (await aws_keys.access_key(AwsCredentials(), region, outlet)).value
    url = text_in(source, "regional_cred_verification_url", FILE).replace("{region}", region)
    parts = urlsplit(url)
    own = [("host", parts.netloc), ("x-goog-cloud-target-resource", text_in(info, "audience", FILE))]
    target = f"{parts.path or '/'}?{parts.query}"
    added = signed_fields(key, SigningScope(region, "sts"), "POST", target, own, b"", time.time())
    names = {"authorization": "Authorization"}
    headers = [{"key": names.get(name, name), "value": value} for name, value in [*own, *added]]
    return quote(_encode({"headers": headers, "method": "POST", "url": url}).decode())


async def impersonated(
    url: str, token: str, scopes: str, delegates: object, seconds: int, outlet: TokenOutlet
) -> Issued[str]:
    """The token of a service account that the owner of another token may impersonate. Raises `RenewalError`."""
    body = _encode({"delegates": delegates, "scope": scopes.split(" "), "lifetime": f"{seconds}s"})
    source = urlsplit(url).netloc
    answer = await outlet.fetch_json("POST", url, [JSON, ("authorization", f"Bearer {token}")], body)
    return Issued(token_text(answer.get("accessToken"), source), seconds_until(answer.get("expireTime"), source))
