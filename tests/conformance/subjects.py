"""What several subjects have in common: requests for sums of tensors, and reasons for absent features."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject
from adapters.tensors import Tensor
from tests.servers.sums import ADD_SUB, OF_ANOTHER_TYPE, ROWS, SUMS, THREE_AND_SEVEN, X

over_both_wires = pytest.mark.parametrize("wire", ["oip-http", "oip-grpc"])
THREE = Tensor("IN", "INT32", (3,), b"".join(number.to_bytes(4, "little") for number in (7, 8, 9)))
"""The input of the model `repeat`, which gives each of its numbers back in a response."""


def no_tensors(protocol: str) -> dict[str, str]:
    """The features that a protocol of texts lacks."""
    return dict.fromkeys(("metadata", "readiness"), f"{protocol} has no tensors.")


def wire_of(wire: str) -> str:
    """The protocol below the Open Inference Protocol."""
    return "HTTP" if wire == "oip-http" else "gRPC"


def adding(**fields: Any) -> Subject:
    """A system with the model `add_sub`; `fields` replace the requests for it, or add to them."""
    own = {
        "right": requests.tensors("add_sub", *ADD_SUB),
        "is_right": requests.outputs(*SUMS.values()),
        "mistake": requests.tensors("add_sub", *OF_ANOTHER_TYPE),
    }
    return Subject(**{**own, **fields})


def summing(model: str, **fields: Any) -> Subject:
    """A system with a model that sums each row, and answers streams in one piece."""
    return Subject(
        right=requests.tensors(model, X),
        is_right=requests.outputs(THREE_AND_SEVEN),
        stream=requests.tensors(model, X, kind="infer_stream"),
        pieces=1,
        mistake=requests.tensors(model, Tensor("x", "FP64", (2, 2), ROWS)),
        **fields,
    )


def chatting(model: str, **fields: Any) -> Subject:
    """A system that answers chats by OpenAI's protocol; `fields` replace the requests for it, or add to them."""
    own = {
        "right": requests.chat(model),
        "is_right": requests.has_text,
        "stream": requests.chat(model, stream=True),
        "pieces": 3,
        "mistake": requests.chat(model, temperature="warm"),
        "long": requests.chat(model, stream=True, max_tokens=1500, ignore_eos=True),
        "lacks": no_tensors("OpenAI's protocol"),
    }
    return Subject(**{**own, **fields})
