"""Access tokens by OAuth's client credentials (RFC 6749 4.4)."""

from base64 import b64encode
from urllib.parse import quote, urlsplit

from adapters.credentials.renewed import Issued
from adapters.credentials.token_endpoint import FORM, TokenOutlet, form, issued_token
from config.schema.protocols.credentials import OAuthCredentials


async def access_token(config: OAuthCredentials, outlet: TokenOutlet) -> Issued[str]:
    """Request a token. Raises `RenewalError`."""
    secret, fields = config.secret.get_secret_value(), [FORM]
    values = {"grant_type": "client_credentials", "scope": config.scope, "audience": config.audience}
    if config.in_body:
        values |= {"client_id": config.client_id, "client_secret": secret}
    else:
        # Both parts are encoded before they are joined (RFC 6749 2.3.1): a colon in the id stays apart.
        pair = f"{quote(config.client_id, safe='')}:{quote(secret, safe='')}"
        fields.append(("authorization", f"Basic {b64encode(pair.encode()).decode()}"))
    answer = await outlet.fetch_json("POST", config.url, fields, form(values))
    return issued_token(answer, urlsplit(config.url).netloc)
