"""The cached contents of Google's stand-in, as strict as Google's: their creation, their use and their end."""

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

HEAD = ("systemInstruction", "tools", "toolConfig")
LEAST = {"gemini-3-flash": 1024, "gemini-2.5-flash": 1024, "gemini-2.5-pro": 4096}
LEAST_AT_VERTEX = 2048
_FIELDS = {"model", "contents", "ttl", "expireTime", "displayName", *HEAD}
_TTL = re.compile(r"(\d+)(?:\.\d+)?s")


@dataclass
class CachedEntry:
    """One of them."""

    name: str
    key: str
    model: str
    fields: Object
    tokens: int
    ttl: int

    @property
    def body(self) -> Object:
        now = datetime.now(UTC)
        expires = datetime.fromtimestamp(time.time() + self.ttl, UTC)
        times = {"createTime": now.isoformat(), "updateTime": now.isoformat(), "expireTime": expires.isoformat()}
        return {"name": self.name, "model": self.model, **times, "usageMetadata": {"totalTokenCount": self.tokens}}


@dataclass
class Caches:
    """All of them. `failure` is that of every creation: a status, its word, and a message."""

    entries: dict[str, CachedEntry] = field(default_factory=dict)
    created: list[Object] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    failure: tuple[int, str, str] | None = None
    lost: tuple[int, str, str] = (403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)")
    """How it refuses the name of a cache that has ended."""


def model_name(resource: str) -> str:
    """The model of a name with its collection."""
    return resource.rpartition("/")[2]


def fault(body: Object, tokens: int, *, of_vertex: bool) -> str | None:
    """What is wrong with the request of a creation."""
    if unknown := sorted(body.keys() - _FIELDS):
        return f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at 'cached_content': Cannot find field."
    collection = "publishers/google/models/" if of_vertex else "models/"
    if collection not in str(body.get("model")):
        return "CachedContent.model: model is required, with its collection"
    if ("ttl" in body) == ("expireTime" in body) or ("ttl" in body and not _TTL.fullmatch(str(body["ttl"]))):
        return "CachedContent: one of ttl and expire_time is required"
    if not body.get("contents", [{}]):
        return "CachedContent.contents: must not be empty"
    least = LEAST_AT_VERTEX if of_vertex else LEAST.get(model_name(body["model"]), 1024)
    if tokens < least:
        return f"Cached content is too small. total_token_count={tokens}, min_total_token_count={least}"
    return None


def stored(caches: Caches, body: Object, key: str, prefix: str, tokens: int) -> CachedEntry:
    """A new one. `prefix` is the place of its project, for Vertex AI."""
    name = f"{prefix}cachedContents/c{len(caches.created)}"
    seconds = _TTL.fullmatch(str(body.get("ttl", "3600s")))
    assert seconds is not None
    caches.created.append(body)
    fields = {each: body[each] for each in (*HEAD, "contents") if each in body}
    return caches.entries.setdefault(name, CachedEntry(name, key, body["model"], fields, tokens, int(seconds[1])))


def misuse(body: Object, model: str, entry: CachedEntry) -> str | None:
    """What is wrong with a request that names one."""
    if set(HEAD) & body.keys():
        return (
            "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
            "tool_config. Proposed fix: move those values to CachedContent from GenerateContent request."
        )
    if model_name(entry.model) != model:
        return "Model used by GenerateContent request and CachedContent has to be the same."
    if not body.get("contents") or body["contents"][0].get("role", "user") != "user":
        return "Please ensure that the contents after a cache begin with a turn of the user."
    return None


def whole(body: Object, entry: CachedEntry) -> Object:
    """The request with the contents of the cache that it names."""
    return {**body, **entry.fields, "contents": [*entry.fields.get("contents", ()), *body["contents"]]}
