"""Payloads: the parts of a request that only its own wire has. Each wire defines its payload beside its codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.types import Feature, TensorWire

if TYPE_CHECKING:
    from adapters.tensors import Inference
    from adapters.wire.openai.ignored_fields import IgnoredFields

Fields = dict[str, Raw]
"""The fields of a JSON object, each undecoded."""


class Payload(msgspec.Struct):
    """The parts of a request that only its wire has, and a cache of the values decoded from them on demand.

    Equal requests may share a payload. Only its cache changes.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class TextPayload(Payload):
    """The body of a request for text, as the fields of OpenAI's API."""

    features: dict[Feature, bool] | None = None
    """The features that have been evaluated."""

    @property
    def fields(self) -> Fields:
        raise NotImplementedError

    def report(self, ignored: IgnoredFields) -> None:
        """Record the parts of the body that `fields` do not express. Raises `CallerError` on a strict route."""

    def with_fields(self, fields: Fields) -> TextPayload:
        """Return a payload with other fields."""
        raise NotImplementedError


class TensorPayload(Payload):
    """The body of an inference."""

    wire: ClassVar[TensorWire]

    body: bytes
    """The message of gRPC, which contains the client's names, or the HTTP body."""
    decoded: Inference | None = None
    rows: int | None = None
    """The number of rows, if only decoding reveals it."""

    @property
    def plain(self) -> bytes:
        """The body without compression."""
        return self.body

    def undecoded(self) -> TensorPayload:
        """Return the payload without compression and with an empty cache, for a worker process."""
        return replace(self, decoded=None, rows=None)
