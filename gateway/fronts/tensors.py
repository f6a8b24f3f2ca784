"""What the fronts of tensors have in common: names with versions, and answers read and written anew."""

from dataclasses import replace

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError
from adapters.http1.message import Request
from adapters.tensors import Inferred
from adapters.types import InferRequest, ModelQuery
from adapters.wire import compression, oip_answers
from gateway.auth.keys import Principal
from gateway.core import Core
from gateway.explain import header
from gateway.snapshot import Snapshot
from gateway.telemetry import Record
from policies.rules import VERSION_SIGN


def named(snapshot: Snapshot, model: str, version: str) -> tuple[str, str]:
    """The name that the rules know, and the version that the server is to be asked for.

    A version that the file lists is the rules' business. It is the server's too where it looks like one of its own,
    a number; so is each that the file does not know of.
    """
    catalogue = snapshot.catalogue
    if not version:
        known = catalogue.find(model)
        if known is not None and (known.name or VERSION_SIGN not in model):
            return model, known.version if known.version.isdigit() else ""
        model, _, version = model.rpartition(VERSION_SIGN) if VERSION_SIGN in model else (model, "", "")
        return model, version
    listed = catalogue.find(f"{model}{VERSION_SIGN}{version}")
    if listed is not None and listed.version:
        return f"{model}{VERSION_SIGN}{version}", version if version.isdigit() else ""
    return model, version


async def asked(core: Core, principal: Principal, query: ModelQuery, http: Request, record: Record) -> bytes:
    """What a model's server answers to a question. Raises `InferenceError`."""
    query.request_id = record.request_id
    answer = await core.handle(principal, query, http.headers, record)
    if answer.body is None:
        await answer.aclose()
        raise BackendError("The upstream answered a question with a stream.", code="upstream_bad_response")
    return answer.body


async def inferred(core: Core, principal: Principal, request: InferRequest, http: Request, record: Record) -> Answer:
    """The begun answer to an inference, and in the record why it went where it went, for who asks and may."""
    request.request_id = record.request_id
    snapshot = core.snapshot
    if header.NAME in http.headers and header.may_ask(snapshot, principal):
        record.explanation = header.told(snapshot, principal, replace(request), http.headers, core.wall())
    return await core.handle(principal, request, http.headers, record)


def read(answer: Answer) -> Inferred:
    """A whole answer's tensors, whatever it is written in. Raises `BackendError`."""
    assert answer.body is not None
    form = answer.form
    if form.wire != "oip-http":
        raise BackendError("The upstream answered no tensors.", code="upstream_bad_response")
    body = answer.body
    if form.encoding:
        try:
            body = compression.decompress(body, form.encoding, MAX_ANSWER)
        except InferenceError:
            raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
    return oip_answers.decode_response(body, form.header_length)


MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer that is compressed, once it is not."""
