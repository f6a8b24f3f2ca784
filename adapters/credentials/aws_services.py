"""The services of AWS that issue temporary access keys: STS, the container's and the instance's metadata."""

import asyncio
import os
import re
import time
from collections.abc import Mapping
from html import unescape
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.sigv4 import AccessKey, SigningScope, signed_fields
from adapters.credentials.token_endpoint import (
    MACHINE,
    TokenOutlet,
    form,
    object_of,
    read_text,
    seconds_until,
    text_in,
    token_text,
)

SESSION = "headrace"
"""The name of the sessions of assumed roles."""
CONTAINER_HOSTS = frozenset({"localhost", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
"""Hosts of a container's metadata over plain HTTP, besides loopback."""
METADATA_SECONDS = 3.0
TOKEN_SECONDS = 300
SESSION_PATH = "/latest/api/token"
_STS_FORM = ("content-type", "application/x-www-form-urlencoded; charset=utf-8")
_ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d+)[a-z]")
_FIELD = re.compile(rb"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>([^<]{1,16384})</")


class AwsServices:
    """The Security Token Service of a region."""

    def __init__(self, region: str, outlet: TokenOutlet) -> None:
        self._region = region
        self._outlet = outlet
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        own = os.environ.get("AWS_ENDPOINT_URL_STS") or os.environ.get("AWS_ENDPOINT_URL")
        self._url = f"{(own or f'https://sts.{region}.{suffix}').rstrip('/')}/"

    async def of_web_identity(self, role: str, token_file: str, session: str) -> Issued[AccessKey]:
        """The key of a role that the token in a file assumes. The file is read each time: it is renewed too."""
        token = await asyncio.to_thread(read_text, token_file, "the token")
        return await self._assume("AssumeRoleWithWebIdentity", role, session, {"WebIdentityToken": token}, None)

    async def of_role(self, key: AccessKey, role: str, session: str, external_id: str | None) -> Issued[AccessKey]:
        """The key of a role that the owner of another key assumes."""
        return await self._assume("AssumeRole", role, session, {"ExternalId": external_id}, key)

    async def _assume(
        self, action: str, role: str, session: str, more: Mapping[str, str | None], key: AccessKey | None
    ) -> Issued[AccessKey]:
        values = {"Action": action, "Version": "2011-06-15", "RoleArn": role, "RoleSessionName": session, **more}
        body, fields = form(values), [_STS_FORM]
        if key is not None:
            place = ("host", urlsplit(self._url).netloc)
            scope = SigningScope(self._region, "sts")
            fields += signed_fields(key, scope, "POST", "/", [place, _STS_FORM], body, time.time())
        text = await self._outlet.fetch("POST", self._url, [*fields, ("accept", "text/xml")], body)
        parts = {name.decode(): unescape(value.decode("utf-8", "replace")) for name, value in _FIELD.findall(text)}
        return key_of({**parts, "Token": parts.get("SessionToken", "")}, urlsplit(self._url).netloc)


def key_of(answer: Mapping[str, Any], source: str) -> Issued[AccessKey]:
    """The key in an answer, whose token may be empty. Raises `RenewalError`."""
    id_, secret = text_in(answer, "AccessKeyId", source), text_in(answer, "SecretAccessKey", source)
    token, expiry = answer.get("Token") or "", answer.get("Expiration")
    if not isinstance(token, str) or not f"{id_}{token}".isascii() or not f"{id_}{token}".isprintable():
        raise RenewalError(f"{source}: the key has characters that a header cannot have")
    return Issued(AccessKey(id_, secret, token), None if expiry is None else seconds_until(expiry, source))


def has_container() -> bool:
    """Whether the environment names the metadata of a container: of ECS, or of EKS Pod Identity."""
    names = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    return any(os.environ.get(name) for name in names)


async def of_container() -> Issued[AccessKey]:
    """The key of the container. Raises `RenewalError`."""
    environment, fields = os.environ, list[tuple[str, str]]()
    if relative := environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        url = f"http://169.254.170.2{relative}"
    else:
        url = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not _may_have_keys(url):
            raise RenewalError("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor of this machine")
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if file := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        token = await asyncio.to_thread(read_text, file, "the token")
    if token:
        if not token.isascii() or not token.isprintable():
            raise RenewalError("the token for the container's metadata is not one line")
        fields.append(("authorization", token))
    return key_of(await MACHINE.fetch_json("GET", url, fields), urlsplit(url).netloc)


def _may_have_keys(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    host = parts.hostname or ""
    try:
        return parts.scheme == "http" and (host in CONTAINER_HOSTS or ip_address(host).is_loopback)
    except ValueError:
        return False


async def of_instance() -> Issued[AccessKey]:
    """The key of the EC2 instance, by version 2 of its metadata service. Raises `RenewalError`."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise RenewalError("no source has an access key, and AWS_EC2_METADATA_DISABLED excludes that of the instance")
    root = instance_root()
    host = urlsplit(root).netloc
    try:
        fields = await _instance_fields(f"{root}{SESSION_PATH}")
    except RenewalError as error:
        hint = "outside of EC2 there is no such source; in a container the instance's hop limit must be 2"
        raise RenewalError(f"no source has an access key, nor the instance: {error} ({hint})") from None
    path = f"{root}/latest/meta-data/iam/security-credentials/"
    role = (await MACHINE.fetch("GET", path, fields, seconds=METADATA_SECONDS)).decode("latin-1").strip()
    if not role:
        raise RenewalError(f"{host}: the instance has no role")
    path += quote(role.splitlines()[0], safe="")
    answer_of_role = object_of(await MACHINE.fetch("GET", path, fields, seconds=METADATA_SECONDS), host)
    if answer_of_role.get("Code", "Success") != "Success":
        raise RenewalError(f"{host}: the role of the instance gives no key ({str(answer_of_role['Code'])[:64]})")
    return key_of(answer_of_role, host)


async def region_of_instance(zone_url: str, token_url: str | None = None) -> str:
    """The region of the EC2 instance, by the URL of its zone, whose name is the region's with a letter. `token_url`
    is that of the session's token; None for the instance's own. Raises `RenewalError`."""
    fields = await _instance_fields(token_url or f"{instance_root()}{SESSION_PATH}")
    text = await MACHINE.fetch("GET", zone_url, fields, seconds=METADATA_SECONDS)
    if (zone := _ZONE.fullmatch(text.decode("latin-1").strip())) is None:
        raise RenewalError(f"{urlsplit(zone_url).netloc}: the answer is no availability zone")
    return zone[1]


def instance_root() -> str:
    """The URL of the instance's metadata, without a slash at its end."""
    environment = os.environ
    six = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower() == "ipv6"
    own = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    return (own or ("http://[fd00:ec2::254]" if six else "http://169.254.169.254")).rstrip("/")


async def _instance_fields(token_url: str) -> list[tuple[str, str]]:
    """The fields with a token of a new session, which version 2 of the metadata service requires."""
    lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", str(TOKEN_SECONDS))]
    answer = await MACHINE.fetch("PUT", token_url, lifetime, seconds=METADATA_SECONDS)
    token = token_text(answer.decode("latin-1").strip(), urlsplit(token_url).netloc)
    return [("x-aws-ec2-metadata-token", token)]
