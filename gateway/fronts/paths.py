"""The paths of the fronts, and alternative ones of client libraries: those of Azure, Gemini's other versions, Gemini at
Vertex AI, and a trailing slash."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from adapters import offload
from adapters.http1.budget import Budget
from adapters.http1.message import Request
from adapters.wire.openai.model_field import with_model

APPS = (b"/apps/", b"/predictions/", b"/explanations/")
BATCHES = b"/v1/batches"
CONVERSATIONS = b"/v1/conversations"
FEEDBACK = b"/v1/feedback"
FILES = b"/v1/files"
GEMINI = b"/v1beta/models"
MESSAGES = b"/v1/messages"
MESSAGE_BATCHES = b"/v1/messages/batches"
MODEL = b"/model/"
"""The paths of Bedrock."""
MODELS = b"/v1/models"
PROJECTS = (b"/v1/projects/", b"/projects/")
"""The paths of Vertex AI."""
RESPONSES = b"/v1/responses"
VERSION = "anthropic-version"
"""The header of clients of Anthropic's API. The paths of its models are also OpenAI's."""
GOOGLE_KEY = "x-goog-api-key"
"""The header of clients of Gemini's API, with their key."""
AZURE = b"/openai/"
_ALPHA = b"/v1alpha/models"
_GEMINI_CALL = re.compile(rb"/v1/models/.+:[a-z]+[A-Z][A-Za-z]*")
"""Verbs of Gemini's API have several words, and those of tensors have one."""
_AT_VERTEX = re.compile(
    rb"(?:/v1|/v1beta1)?(?:/projects/[^/]+/locations/[^/]+)?"
    rb"/(?:publishers/(?!anthropic/)([^/]+)/models|endpoints(?=/))(/[^/:]+)?(:[A-Za-z]+)?"
)
"""Gemini's calls at Vertex AI. Those of Anthropic's models are of another API."""
_VERTEX = (*PROJECTS, b"/v1beta1/", b"/v1/publishers/", b"/publishers/")
_DEPLOYMENT = re.compile(rb"/openai/deployments/([^/]{1,512})(/.*)")
_VERSIONED = b"/openai/v1/"


class Readdressed(Request):
    """A client's request under the gateway's own path. A deployment in the path is the request's model."""

    __slots__ = ("_model", "_received")

    def __init__(self, received: Request, target: bytes, model: str) -> None:
        super().__init__(received.method, target, received.headers, received.peer)
        self.query = received.query
        self._received = received
        self._model = model

    @property
    def received_target(self) -> bytes:
        return self._received.received_target

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        return self._received.peer_certificate

    @property
    def length(self) -> int:  # type: ignore[override]  # the body is still being received
        return self._received.length

    @property
    def size(self) -> int:  # type: ignore[override]
        return self._received.size

    @property
    def pending(self) -> bool:
        return self._received.pending

    def charge_to(self, budget: Budget) -> None:
        self._received.charge_to(budget)

    async def read_encoded(self) -> bytes:
        return await self._received.read_encoded()

    async def decoded(self, body: bytes) -> bytes:
        return await self._received.decoded(body)

    def pieces(self) -> AsyncIterator[bytes]:
        return self._received.pieces()

    async def read(self) -> bytes:
        body = await self._received.read()
        if not self._model:
            return body
        content_type = self.headers.get("content-type") or ""
        return await offload.scan(len(body), with_model, content_type, body, self._model)


def readdressed(http: Request) -> Request:
    """The request under the gateway's own path; the request itself if it has such a path."""
    target = http.target
    if target.startswith(AZURE):
        target, model = _own_path(target)
        return Readdressed(http, _without_slash(target), model)
    if target.startswith(_ALPHA) or (target.startswith(MODELS) and _is_for_gemini(http)):
        return Readdressed(http, _without_slash(GEMINI + target[target.index(b"/models") + 7 :]), "")
    if target.startswith(_VERTEX) and (match := _AT_VERTEX.fullmatch(target)):
        return Readdressed(http, _of_gemini(match), "")
    if target.endswith(b"/") and not target.startswith(APPS):
        return Readdressed(http, _without_slash(target), "")
    return http


def _is_for_gemini(http: Request) -> bool:
    """Whether a path of models, which several APIs have, is of Gemini's API."""
    if http.method == "POST":
        return _GEMINI_CALL.fullmatch(http.target) is not None
    return GOOGLE_KEY in http.headers


def _of_gemini(match: re.Match[bytes]) -> bytes:
    """The path of Gemini's API for one of Vertex AI. Models of other publishers have these in their names."""
    publisher, name, verb = match[1], match[2] or b"", match[3] or b""
    of_other = b"/" + publisher if name and publisher not in (None, b"google") else b""
    return GEMINI + of_other + name + verb


def _own_path(target: bytes) -> tuple[bytes, str]:
    """The gateway's path for Azure's, and the deployment in it."""
    if match := _DEPLOYMENT.fullmatch(target):
        return b"/v1" + match[2], unquote_to_bytes(match[1]).decode(errors="replace")
    if target.startswith(_VERSIONED):
        return b"/v1/" + target[len(_VERSIONED) :], ""
    return b"/v1/" + target[len(AZURE) :], ""


def _without_slash(target: bytes) -> bytes:
    return target[:-1] if len(target) > 1 and target.endswith(b"/") else target
