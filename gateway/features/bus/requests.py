"""One message as an ordinary request: a front decodes it, the core answers it."""

import logging
from functools import partial

from adapters import offload
from adapters.errors import CallerError
from adapters.http1.message import Response
from adapters.wire.openai.model_field import with_model
from config.schema.bus import BindingConfig
from gateway.features.bus.work import MessageWork
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.stored_responses import StoredResponses
from gateway.fronts.errors import openai_response
from gateway.fronts.inner import InnerFronts, InnerRequest
from gateway.request.core import Core, internal_error

log = logging.getLogger(__name__)


class MessageRequests:
    """Answers the messages of one binding."""

    def __init__(self, binding: BindingConfig, core: Core, keeper: Keeper | None) -> None:
        self._fronts = InnerFronts(core, partial(StoredResponses, keeper=keeper))
        self._model = binding.model
        self._peer = f"bus:{binding.name}"

    async def answer(self, work: MessageWork) -> tuple[InnerRequest, Response]:
        """Answer one message. Failures are a status and an error of the request, as for a client."""
        body = work.event.data
        if self._model is not None:
            try:
                body = await offload.scan(len(body), with_model, work.event.content_type, body, self._model)
            except CallerError:
                body = work.event.data  # the front reports it
        http = InnerRequest(work.principal, work.target.encode(), work.headers, body, self._peer)
        try:
            return http, await self._fronts.answer(http)
        except Exception:
            log.exception("bus: a message failed")
            http.error = internal_error()
            return http, openai_response(http.error, [])
