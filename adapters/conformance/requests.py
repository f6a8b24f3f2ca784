"""Builds requests for a subject."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from adapters.base import Answer
from adapters.conformance.subject import MakeRequest
from adapters.requests import AppRequest
from adapters.tensors import Inference, Tensor
from adapters.types import InferKind
from adapters.upstreams import inferred
from adapters.wire.oip import request_view as oip_view
from adapters.wire.oip import requests as oip
from adapters.wire.openai import chat as openai

_encode = msgspec.json.encode


def chat(model: str, text: str = "Count to ten.", **more: Any) -> MakeRequest:
    """A chat of one message; `more` are further fields of the body, for example `stream` and `max_tokens`."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 16, **more}
    return lambda: openai.decode_chat(_encode(body))


def completion(model: str, prompt: str = "One, two, three,", **more: Any) -> MakeRequest:
    """A text completion."""
    body = {"model": model, "prompt": prompt, "max_tokens": 16, **more}
    return lambda: openai.decode_completion(_encode(body))


def embedding(model: str, *texts: str) -> MakeRequest:
    """An embedding of texts."""
    return lambda: openai.decode_embedding(_encode({"model": model, "input": list(texts)}))


def tensors(model: str, *inputs: Tensor, kind: InferKind = "infer", **parameters: Any) -> MakeRequest:
    """An inference of tensors in the HTTP form; an adapter of another wire transcodes it."""
    inference = Inference(model, inputs=list(inputs), parameters=parameters)
    body, length = oip.encode_request(inference, binary=False)
    return lambda: oip_view.request_of(body, model=model, version="", kind=kind, header_length=length)


def prompt(model: str, body: Mapping[str, Any], kind: InferKind = "generate") -> MakeRequest:
    """A request of Triton's generate extension."""
    return lambda: oip_view.request_of(_encode(body), model=model, version="", kind=kind)


def app(model: str, path: str = "/", method: str = "GET", body: bytes = b"", content_type: str = "") -> MakeRequest:
    """A call of an app."""
    return lambda: AppRequest(model=model, method=method, path=path, body=body, content_type=content_type)


def outputs(*expected: Sequence[Any] | bytes) -> Callable[[Answer], bool]:
    """A check that the tensors of a response contain these bytes, in this order."""

    def is_right(answer: Answer) -> bool:
        return [bytes(one.data) for one in inferred.inferred(answer).outputs] == list(expected)

    return is_right


def has_text(answer: Answer) -> bool:
    """Whether a response has usage, and text in every choice or numbers in every vector."""
    body = msgspec.json.decode(answer.body or b"")
    contents = [_text_of(choice) for choice in body.get("choices", ())] or [one["embedding"] for one in body["data"]]
    return all(contents) and answer.usage.prompt_tokens > 0


def _text_of(choice: Mapping[str, Any]) -> str:
    return str(choice["message"]["content"] if "message" in choice else choice["text"])
