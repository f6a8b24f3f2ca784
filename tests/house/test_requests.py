"""A request is immutable: each class of requests is frozen, and no product code goes round that."""

import pytest
from msgspec.structs import replace

from adapters.requests import ChatRequest, ModelRequest
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.openai.request_codec import OpenAIPayload
from tests.house.tree import files_with


def classes(kind: type[ModelRequest]) -> list[type[ModelRequest]]:
    """The class and all classes below it."""
    return [kind, *(inner for below in kind.__subclasses__() for inner in classes(below))]


def test_every_class_of_requests_is_frozen() -> None:
    request_classes = classes(ModelRequest)
    assert {MessagesRequest, TokenCount} <= set(request_classes)
    assert not [kind for kind in request_classes if not kind.__struct_config__.frozen]
    assert not files_with("force_setattr")


def test_a_request_cannot_be_changed() -> None:
    request = ChatRequest(model="m", payload=OpenAIPayload(fields={}))
    with pytest.raises(AttributeError):
        request.model = "other"  # type: ignore[misc]
    assert (replace(request, model="other").model, request.model) == ("other", "m")


def test_a_derived_request_leaves_the_first_one_as_it_is() -> None:
    request = ChatRequest(model="m", payload=OpenAIPayload(fields={}))
    assert request.codec.rename(request, "other").model == "other"
    assert request.model == "m"
