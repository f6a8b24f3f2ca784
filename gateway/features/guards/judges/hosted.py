"""Hosted services: requests to the pool of a model, which has their address, their credentials and their breaker."""

import secrets
import time
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.errors import BackendError
from adapters.requests import AppRequest
from adapters.wire import decoding
from adapters.wire.webhook_signature import headers_of
from config.schema.guards import WebhookGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge, UndecidedError
from gateway.features.guards.judges.services import LONGEST, SERVICES, has_match, path_of

VERSION = 1
"""Of our contract."""
UNREADABLE = "upstream_bad_response"
_OF_TEXT = frozenset((400, 413, 422))
"""Statuses that a text may cause: they do not open the breaker."""
_encode = msgspec.json.Encoder().encode


class HostedJudge(Judge):
    """Asks a service."""

    joins = True

    def __init__(self, config: WebhookGuardConfig) -> None:
        super().__init__(config)
        self._config = config
        if (longest := LONGEST.get(config.service)) is not None:
            self.window = min(self.window, longest)
            self.overlap = min(self.overlap, self.window - 1)

    async def finds(self, text: str, calls: GuardCalls) -> bool:
        answer = await calls.call(self._config.model, self._request(text, calls), self.timeout)
        return self._verdict(_decoded(answer))

    def _request(self, text: str, calls: GuardCalls) -> AppRequest:
        config, side, path, query = self._config, calls.side, "", ""
        own_headers: tuple[tuple[str, str], ...] = ()
        if config.service == "headrace":
            body = _encode(self._message(text, calls))
            assert config.secret is not None
            signed = headers_of(f"msg_{secrets.token_hex(16)}", body, config.secret.get_secret_value(), time.time())
            own_headers = tuple((name, value) for name, value in signed.items() if name != "content-type")
        else:
            row = SERVICES[config.service]
            path, query, body = path_of(config, side), row.query, _encode(row.body(text, side))
        return AppRequest(
            model=config.model, path=path, query=query, body=body, size=len(body), content_type="application/json",
            accept="application/json", own_headers=own_headers, repeatable=True,
        )  # fmt: skip

    def _message(self, text: str, calls: GuardCalls) -> dict[str, Any]:
        exchange = calls.exchange
        return {
            "version": VERSION,
            "guard": self._config.name,
            "request_id": exchange.record.request_id,
            "tenant": exchange.principal.tenant,
            "model": exchange.model,
            "side": calls.side,
            "text": text,
        }

    def _verdict(self, answer: Any) -> bool:
        if self._config.service == "headrace":
            verdict = answer.get("verdict") if isinstance(answer, dict) else None
            if verdict not in ("pass", "found") or answer.get("version") != VERSION:
                raise _no_verdict()
            return bool(verdict == "found")
        try:
            return has_match(self._config.service, answer, self._config.severity)
        except ValueError:
            raise _no_verdict() from None


def _decoded(answer: Answer) -> Any:
    if answer.status in _OF_TEXT:
        raise UndecidedError(f"The service refused the text with the status {answer.status}.", code=UNREADABLE)
    if answer.status != 200:
        raise BackendError(f"The service answered with the status {answer.status}.", code=UNREADABLE)
    try:
        return msgspec.json.decode(answer.body or b"")
    except decoding.MALFORMED_JSON:
        raise _no_verdict() from None


def _no_verdict() -> BackendError:
    return BackendError("The answer of the service has no verdict.", code=UNREADABLE)
