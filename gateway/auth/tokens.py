"""JSON Web Tokens (RFC 7519), verified in memory with keys fetched before (RFC 8725 lists the attacks)."""

import asyncio
import hashlib
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from adapters.errors import CredentialError
from config.schema.identity import ROLES, USER, JwtConfig
from gateway.auth.keys import NO_LABELS, Principal, holder_id
from gateway.auth.scope import Scope
from gateway.auth.table import REFUSED

if TYPE_CHECKING:
    from gateway.auth.jwks import Jwks

MAX_TOKEN = 8192
MAX_VERIFIED = 4096
VERIFIED_SECONDS = 60.0
_SCOPES = frozenset({"models", "fronts", "routes"})
_ORDER = (
    "token_malformed", "token_issuer", "token_algorithm", "token_key", "token_signature", "token_claims",
    "token_audience", "token_early", "token_expired",
)  # fmt: skip
"""How far the check of a token came: of several entries for one issuer, the one that came farthest has the reason."""
_SIGNED = frozenset({"token_audience", "token_early", "token_expired"})
_REQUIRED = ["iss", "aud", "exp", "sub"]


class _Verified(NamedTuple):
    """The result of a token's verification, and the Unix seconds between which it stays valid."""

    principal: Principal
    since: float
    until: float


class _Rejected(NamedTuple):
    """Why an issuer does not accept a token. Holder and tenant are those of a token with a right signature."""

    cause: str
    issuer: str = ""
    holder: str = ""
    tenant: str = ""

    def error(self, tenants: Container[str]) -> CredentialError:
        """The refusal, the same for the client whatever the cause."""
        error = CredentialError(REFUSED).because(self.cause, key=self.holder, issuer=self.issuer, tenant=self.tenant)
        if self.tenant in tenants:
            error.holder = self.tenant, self.holder, ""
        return error


class Tokens:
    """Every issuer of the configuration, and the recently verified tokens, by digest."""

    def __init__(self, issuers: Sequence[JwtConfig], clock: Callable[[], float]) -> None:
        self._verified: dict[bytes, _Verified] = {}
        # The withdrawal of a key also ends the tokens that it signed.
        self._issuers = [_Issuer(config, clock, self._verified.clear) for config in issuers]
        self.key_sets = [issuer.jwks for issuer in self._issuers if issuer.jwks is not None]

    async def load(self) -> None:
        """Fetch all keys for the first time. `run` repeats failed fetches: the gateway starts without these keys."""
        await asyncio.gather(*(keys.refresh() for keys in self.key_sets))

    async def run(self) -> None:
        """Refresh all keys until cancelled."""
        async with asyncio.TaskGroup() as group:
            for keys in self.key_sets:
                group.create_task(keys.run())

    def files_may_have_changed(self) -> None:
        """Read keys in files again soon."""
        for keys in self.key_sets:
            keys.file_may_have_changed()

    def authenticate(self, token: str, now_utc: float, tenants: Container[str]) -> Principal:
        """The principal of a token, one of `tenants`. Raises `CredentialError`, the same for every reason."""
        if not self._issuers or len(token) > MAX_TOKEN:
            raise CredentialError(REFUSED).because("token_malformed" if self._issuers else "token_issuer")
        digest = hashlib.sha256(token.encode()).digest()
        verified = self._verified.get(digest)
        if verified is None or not verified.since <= now_utc < verified.until:
            verified = self._verify(token, now_utc, tenants)
            self._remember(digest, verified)
        if (holder := verified.principal).tenant not in tenants:
            raise CredentialError(REFUSED).because("tenant_removed", key=holder.key_id, tenant=holder.tenant)
        return verified.principal

    def _verify(self, token: str, now_utc: float, tenants: Container[str]) -> _Verified:
        import jwt  # with cryptography: for files with an issuer

        rejected = _Rejected("token_malformed")
        try:
            unverified = jwt.decode_complete(token, options={"verify_signature": False})
            header, payload = unverified["header"], unverified["payload"]
            if "crit" not in header:  # no extension is supported here
                rejected = _Rejected("token_issuer")
                for issuer in self._issuers:
                    if issuer.name == payload.get("iss"):
                        verified = issuer.verify(token, header, payload, now_utc)
                        if isinstance(verified, _Verified):
                            return verified
                        rejected = max(rejected, verified, key=lambda each: _ORDER.index(each.cause))
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
            if rejected.cause == "token_issuer":
                rejected = _Rejected("token_claims")
        raise rejected.error(tenants)

    def _remember(self, digest: bytes, verified: _Verified) -> None:
        self._verified.pop(digest, None)
        if len(self._verified) >= MAX_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified


class _Issuer:
    """One entry of `auth.jwt`."""

    def __init__(self, config: JwtConfig, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        self.name = config.issuer
        self.jwks = None if config.jwks is None else _jwks(config, clock, on_change)
        secret = config.allow_symmetric_secret
        self._secret = secret.get_secret_value().encode() if secret is not None else None
        self._config = config

    def verify(
        self, token: str, header: dict[str, Any], payload: dict[str, Any], now_utc: float
    ) -> _Verified | _Rejected:
        """The result of a token, with its unverified payload.

        Propagates the errors of claims of a wrong type.
        """
        import jwt

        config, algorithm = self._config, header.get("alg")
        if algorithm not in config.algorithms:
            return _Rejected("token_algorithm", config.name)
        key = self.jwks.find(header.get("kid"), algorithm) if self.jwks is not None else self._secret
        if key is None:
            return _Rejected("token_key", config.name)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=config.algorithms,
                audience=config.audience,
                issuer=config.issuer,
                leeway=config.leeway,
                options={"require": _REQUIRED, "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            return self._rejected(_cause_of(error), payload)
        check_types(claims)
        holder = holder_id(f"jwt:{config.name}", claims["sub"])
        principal = Principal(self._tenant(claims), holder, self._roles(claims), NO_LABELS, self._scope(claims))
        return _Verified(principal, now_utc, min(claims["exp"], now_utc + VERIFIED_SECONDS))

    def _rejected(self, cause: str, payload: dict[str, Any]) -> _Rejected:
        """The signature is checked before the claims: behind a right one the payload is the issuer's own."""
        if cause not in _SIGNED:
            return _Rejected(cause, self._config.name)
        subject = payload.get("sub")
        holder = holder_id(f"jwt:{self._config.name}", subject) if isinstance(subject, str) else ""
        try:
            tenant = self._tenant(payload)
        except TypeError:
            tenant = ""
        return _Rejected(cause, self._config.name, holder, tenant)

    def _tenant(self, claims: dict[str, Any]) -> str:
        if self._config.tenant is not None:
            return self._config.tenant
        tenant = claim_of(claims, self._config.claims.tenant or "")
        if not isinstance(tenant, str):
            raise TypeError("the tenant is not text")
        return tenant

    def _roles(self, claims: dict[str, Any]) -> frozenset[str]:
        """The names in the claim, and the roles that the file maps them to.

        Authority comes from the mapping only: an issuer grants no role by using the role's name. An issuer of one
        tenant grants no authority over others.
        """
        named = frozenset(texts_of(claims, self._config.claims.roles) or ())
        mapped = {self._config.roles[name] for name in named & self._config.roles.keys()}
        if self._config.tenant is not None:
            mapped.discard("operator")
        return USER | mapped | (named - ROLES - self._config.roles.keys())

    def _scope(self, claims: dict[str, Any]) -> Scope | None:
        """The scopes of the claim; None if it restricts nothing."""
        named: dict[str, list[str]] = {}
        for text in texts_of(claims, self._config.claims.scope) or ():
            for entry in text.split():
                kind, separator, name = entry.partition(":")
                if separator and kind in _SCOPES:
                    named.setdefault(kind, []).append(name)
        return Scope(**named) if named else None


def _cause_of(error: Exception) -> str:
    """The cause of a refusal by PyJWT."""
    import jwt

    causes: tuple[tuple[type[Exception], str], ...] = (
        (jwt.InvalidAlgorithmError, "token_algorithm"),
        (jwt.ExpiredSignatureError, "token_expired"),
        (jwt.ImmatureSignatureError, "token_early"),
        (jwt.InvalidAudienceError, "token_audience"),
        (jwt.InvalidSignatureError, "token_signature"),
        (jwt.InvalidKeyError, "token_key"),
    )
    return next((cause for kind, cause in causes if isinstance(error, kind)), "token_claims")


def _jwks(config: JwtConfig, clock: Callable[[], float], on_change: Callable[[], None]) -> "Jwks":
    from gateway.auth.jwks import Jwks

    return Jwks(config, clock, on_change)


def check_types(claims: dict[str, Any]) -> None:
    """Checks that PyJWT omits and RFC 7519 requires: `"exp": "1800000000"` and an empty subject are refused."""
    times = [claims[name] for name in ("exp", "nbf", "iat") if name in claims]
    if not all(isinstance(time, int | float) for time in times) or not claims["sub"]:
        raise TypeError("a claim is not of its type")


def texts_of(claims: dict[str, Any], path: str | None) -> list[str] | None:
    """A claim that is a text or a list of texts; None if absent. Raises `TypeError` for any other value."""
    given = claim_of(claims, path) if path is not None else None
    if given is None:
        return None
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError("a claim is not a list of texts")
    return texts


def claim_of(claims: dict[str, Any], path: str) -> object:
    """The value of a claim; None if absent. A claim's name may contain dots itself, as URLs do."""
    if path in claims:
        return claims[path]
    value: object = claims
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
