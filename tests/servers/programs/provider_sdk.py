"""The official client of a provider before an address: `provider_sdk.py CLIENT URL KEY MODEL`.

It asks for a text, for calls of a tool, and for a stream of the same, and prints what it has read as JSON: texts,
calls, and tokens.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
Create = Callable[..., Any]


def _of_openai(url: str, key: str) -> Create:
    return _stainless("openai", "OpenAI", url, key)


def _stainless(module: str, name: str, url: str, key: str, *roots: str) -> Create:
    """Clients that are made as OpenAI's. Those with `roots` add the end of the URL themselves."""
    base = next((url.removesuffix(root) for root in roots if url.endswith(root)), url)
    client = getattr(importlib.import_module(module), name)(base_url=base, api_key=key, max_retries=0)
    created: Create = client.chat.completions.create
    return created


def _of_groq(url: str, key: str) -> Create:
    return _stainless("groq", "Groq", url, key, "/openai/v1", "/v1")


def _of_together(url: str, key: str) -> Create:
    return _stainless("together", "Together", url, key, "/v1")


def _of_fireworks(url: str, key: str) -> Create:
    return _stainless("fireworks", "Fireworks", url, key, "/v1")


def _of_mistral(url: str, key: str) -> Create:
    chat = importlib.import_module("mistralai.client").Mistral(api_key=key, server_url=url.removesuffix("/v1")).chat

    def created(*, stream: bool = False, **fields: Any) -> Any:
        return (event.data for event in chat.stream(**fields)) if stream else chat.complete(**fields)

    return created


def _of_openrouter(url: str, key: str) -> Create:
    sent: Create = importlib.import_module("openrouter").OpenRouter(api_key=key, server_url=url).chat.send
    return sent


CLIENTS: dict[str, Callable[[str, str], Create]] = {
    "openai": _of_openai,
    "groq": _of_groq,
    "together": _of_together,
    "fireworks": _of_fireworks,
    "mistral": _of_mistral,
    "openrouter": _of_openrouter,
}


def _read(parts: Iterable[Any]) -> dict[str, Any]:
    """The text, calls and tokens of an answer, or of the chunks of a stream."""
    text, calls, tokens = "", dict[str, list[str]](), [0, 0]
    last = ""
    for part in parts:
        whole = part.model_dump(mode="json", warnings=False)
        for choice in whole.get("choices") or ():
            message = choice.get("message") or choice.get("delta") or {}
            text += _text(message.get("content"))
            for call in message.get("tool_calls") or ():
                last = call.get("id") if call.get("id") not in (None, "null") else last
                name, arguments = calls.setdefault(last, ["", ""])
                given = call["function"].get("arguments") or ""
                given = given if isinstance(given, str) else json.dumps(given)
                calls[last] = [name + (call["function"].get("name") or ""), arguments + given]
        usage = whole.get("usage") or (whole.get("x_groq") or {}).get("usage") or {}
        if usage.get("prompt_tokens"):
            tokens = [usage["prompt_tokens"], usage["completion_tokens"]]
    made = [[id_, name, json.loads(arguments)] for id_, (name, arguments) in calls.items()]
    return {"text": text, "calls": made, "tokens": tokens}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def main(client: str, url: str, key: str, model: str) -> None:
    create = CLIENTS[client](url, key)
    common: Any = {"model": model, "messages": USER}
    options = {"stream_options": {"include_usage": True}} if client in ("openai", "openrouter") else {}
    answers = [
        _read([create(**common)]),
        _read([create(**common, tools=TOOLS)]),
        _read(create(**common, tools=TOOLS, stream=True, **options)),
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
