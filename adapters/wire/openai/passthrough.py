"""OpenAI's operations beside text, and additions of its family: their bodies are forwarded unchanged."""

from typing import Literal, NamedTuple

Kind = Literal["rerank", "score", "tokenize", "audio", "images", "moderations"]


class PassthroughOperation(NamedTuple):
    """One operation."""

    kind: Kind
    path: str
    below: Literal["api", "server"] = "api"
    """The root of the path at a server."""


PASSTHROUGH = {
    "/v1/rerank": PassthroughOperation("rerank", "/rerank"),
    "/rerank": PassthroughOperation("rerank", "/rerank"),
    "/v2/rerank": PassthroughOperation("rerank", "/v2/rerank", "server"),
    "/v1/score": PassthroughOperation("score", "/score"),
    "/score": PassthroughOperation("score", "/score"),
    "/tokenize": PassthroughOperation("tokenize", "/tokenize", "server"),
    "/detokenize": PassthroughOperation("tokenize", "/detokenize", "server"),
    "/v1/audio/transcriptions": PassthroughOperation("audio", "/audio/transcriptions"),
    "/v1/audio/translations": PassthroughOperation("audio", "/audio/translations"),
    "/v1/audio/speech": PassthroughOperation("audio", "/audio/speech"),
    "/v1/images/generations": PassthroughOperation("images", "/images/generations"),
    "/v1/images/edits": PassthroughOperation("images", "/images/edits"),
    "/v1/images/variations": PassthroughOperation("images", "/images/variations"),
    "/v1/moderations": PassthroughOperation("moderations", "/moderations"),
}
"""The operations by the gateway's path."""
