"""Calls of google-genai, whose results are printed as JSON.

    python google_calls.py MODEL KIND CLOUD

Run in google-genai's own environment. KIND is `chats` for a model of chats, `all` for one of Gemini's, or `caches` for
its cached contents. CLOUD is
`gemini`, or for the paths of Vertex AI `vertex`, or `express` without a project.
"""

import json
import os
import sys
from typing import Any

from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials  # type: ignore[import-untyped]

URL, KEY = os.environ["HEADRACE_URL"], os.environ["HEADRACE_KEY"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
PICTURE = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")


def client_of(cloud: str) -> genai.Client:
    """The library's client of a cloud."""
    options = types.HttpOptions(base_url=URL)
    if cloud == "vertex":
        place = {"project": os.environ["HEADRACE_PROJECT"], "location": os.environ["HEADRACE_LOCATION"]}
        return genai.Client(vertexai=True, credentials=Credentials(token=KEY), http_options=options, **place)
    return genai.Client(vertexai=cloud == "express", api_key=KEY, http_options=options)


def looped(client: genai.Client, model: str) -> list[Any]:
    """The names of the calls of two turns with a picture, with the results returned."""
    declared = [types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in ("weather", "time")]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=types.ThinkingConfig(include_thoughts=True),
        max_output_tokens=4096,
    )
    history = [types.Content(role="user", parts=[PICTURE, types.Part(text="please call")])]
    names = []
    for _ in range(2):
        answer = client.models.generate_content(model=model, contents=history, config=config)
        calls = answer.function_calls or []
        names.append([call.name for call in calls])
        results = [types.FunctionResponse(id=call.id, name=call.name, response={"output": call.name}) for call in calls]
        history += [
            answer.candidates[0].content,
            types.Content(role="user", parts=[types.Part(function_response=result) for result in results]),
            types.Content(role="user", parts=[types.Part(text="call again")]),
        ]
    return names


def failure(client: genai.Client, model: str, text: str) -> list[Any]:
    """The status of a failure, and its word."""
    try:
        client.models.generate_content(model=model, contents=text)
    except errors.APIError as error:
        return [error.code, error.status]
    return []


def cached(client: genai.Client, model: str) -> dict[str, Any]:
    """What becomes of one beginning, from its creation to its end."""
    beginning = types.CreateCachedContentConfig(system_instruction="words " * 3000, ttl="300s")
    cache = client.caches.create(model=model, config=beginning)
    config = types.GenerateContentConfig(cached_content=cache.name)
    answer = client.models.generate_content(model=model, contents="hi there", config=config)
    longer = client.caches.update(name=cache.name, config=types.UpdateCachedContentConfig(ttl="3600s"))
    got = client.caches.get(name=cache.name)
    client.caches.delete(name=cache.name)
    try:
        client.models.generate_content(model=model, contents="hi there", config=config)
        lost = 0
    except errors.APIError as error:
        lost = error.code
    return {
        "tokens": [cache.usage_metadata.total_token_count, answer.usage_metadata.cached_content_token_count],
        "text": answer.text,
        "longer": longer.expire_time > cache.expire_time,
        "same": got.name == cache.name,
        "lost": lost,
    }


if __name__ == "__main__":
    model, kind, cloud = sys.argv[1:]
    client = client_of(cloud)
    if kind == "caches":
        print(json.dumps(cached(client, model)))
        sys.exit()
    whole = client.models.generate_content(model=model, contents="hi there")
    streamed = [chunk.text or "" for chunk in client.models.generate_content_stream(model=model, contents="a b c")]
    printed: dict[str, Any] = {
        "text": whole.text,
        "finish": whole.candidates[0].finish_reason.value,
        "counts": whole.usage_metadata.total_token_count > 0,
        "stream": "".join(streamed),
        "calls": looped(client, model),
        "count": client.models.count_tokens(model=model, contents="hi there").total_tokens > 0,
    }
    if kind == "all":
        size = types.EmbedContentConfig(output_dimensionality=2)
        config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=SCHEMA)
        vectors = client.models.embed_content(model=model, contents=["a", "bb"], config=size).embeddings
        printed |= {
            "vectors": [vector.values for vector in vectors],
            "schema": client.models.generate_content(model=model, contents="hi", config=config).parsed,
            "long": failure(client, model, "!long"),
            "quota": failure(client, model, "!quota"),  # last: a server with a used quota rests for a while
        }
    print(json.dumps(printed))
