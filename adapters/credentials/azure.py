"""Access tokens of Microsoft Entra."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.token_endpoint import (
    FORM,
    MACHINE,
    TokenOutlet,
    form,
    issued_token,
    read_text,
    seconds_until,
    token_text,
)
from config.schema.protocols.credentials import AzureCredentials

COGNITIVE, FOUNDRY = "https://cognitiveservices.azure.com/.default", "https://ai.azure.com/.default"
AUTHORITY = "https://login.microsoftonline.com"
METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def scope_of(url: str) -> str:
    """The scope of the tokens for a server."""
    return FOUNDRY if (urlsplit(url).hostname or "").endswith(".services.ai.azure.com") else COGNITIVE


async def entra_token(config: AzureCredentials, scope: str, outlet: TokenOutlet) -> Issued[str]:
    """Request a token. Raises `RenewalError`."""
    environment = os.environ
    tenant = config.tenant or environment.get("AZURE_TENANT_ID")
    client = config.client_id or environment.get("AZURE_CLIENT_ID")
    if config.managed:
        return await of_machine(config.client_id, scope)
    secret = config.secret.get_secret_value() if config.secret is not None else None
    file = config.token_file
    if secret is None and file is None:
        secret = environment.get("AZURE_CLIENT_SECRET") or None
        file = environment.get("AZURE_FEDERATED_TOKEN_FILE") if secret is None else None
        if secret is None and not file:
            return await of_machine(client, scope)
    if not tenant or not client:
        missing = "`tenant` or AZURE_TENANT_ID" if not tenant else "`client_id` or AZURE_CLIENT_ID"
        raise RenewalError(f"the application is unknown: set {missing}")
    authority = config.authority or environment.get("AZURE_AUTHORITY_HOST") or AUTHORITY
    url = f"{authority.rstrip('/')}/{quote(tenant, safe='')}/oauth2/v2.0/token"
    values = {"client_id": client, "grant_type": "client_credentials", "scope": scope}
    if secret is not None:
        values["client_secret"] = secret
    else:
        values["client_assertion_type"] = ASSERTION_TYPE
        values["client_assertion"] = await asyncio.to_thread(read_text, file or "", "the token")
    answer = await outlet.fetch_json("POST", url, [FORM], form(values))
    return issued_token(answer, urlsplit(url).netloc)


async def of_machine(client: str | None, scope: str) -> Issued[str]:
    """The token of the machine's managed identity; `client` is that of a user-assigned one. Raises `RenewalError`."""
    environment, resource = os.environ, scope.removesuffix("/.default")
    if endpoint := environment.get("IDENTITY_ENDPOINT"):  # App Service, Functions, Container Apps
        url, fields = endpoint, [("x-identity-header", environment.get("IDENTITY_HEADER", ""))]
        values = {"api-version": "2019-08-01", "resource": resource}
    else:
        url = environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "").rstrip("/")
        url, fields = f"{url}/metadata/identity/oauth2/token" if url else METADATA, [("metadata", "true")]
        values = {"api-version": "2018-02-01", "resource": resource}
    if client:
        values["client_id"] = client
    source = urlsplit(url).netloc
    try:
        answer = await MACHINE.fetch_json("GET", f"{url}?{urlencode(values)}", fields)
    except RenewalError as error:
        raise RenewalError(f"the machine gives no managed identity: {error}") from None
    return _issued(answer, source)


def _issued(answer: Mapping[str, Any], source: str) -> Issued[str]:
    """App Service states the time of the expiry alone; others state it also as a number of seconds in a text."""
    if answer.get("expires_in") is None and answer.get("expires_on") is not None:
        expiry = seconds_until(answer["expires_on"], source)
        return Issued(token_text(answer.get("access_token"), source), expiry)
    return issued_token(answer, source)
