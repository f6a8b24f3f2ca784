"""OpenAI's calls beside text, and those that its family has added, which are passed on as they are."""

from typing import Literal, NamedTuple

Kind = Literal["rerank", "score", "tokenize", "audio", "images", "moderations"]


class Call(NamedTuple):
    """One path."""

    kind: Kind
    path: str
    below: Literal["api", "server"] = "api"
    """What the path is below, at a server."""


CALLS = {
    "/v1/rerank": Call("rerank", "/rerank"),
    "/rerank": Call("rerank", "/rerank"),
    "/v2/rerank": Call("rerank", "/v2/rerank", "server"),
    "/v1/score": Call("score", "/score"),
    "/score": Call("score", "/score"),
    "/tokenize": Call("tokenize", "/tokenize", "server"),
    "/detokenize": Call("tokenize", "/detokenize", "server"),
    "/v1/audio/transcriptions": Call("audio", "/audio/transcriptions"),
    "/v1/audio/translations": Call("audio", "/audio/translations"),
    "/v1/audio/speech": Call("audio", "/audio/speech"),
    "/v1/images/generations": Call("images", "/images/generations"),
    "/v1/images/edits": Call("images", "/images/edits"),
    "/v1/images/variations": Call("images", "/images/variations"),
    "/v1/moderations": Call("moderations", "/moderations"),
}
"""By the gateway's path."""
