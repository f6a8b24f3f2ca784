"""The price of a translation: the CPU time of one gateway for the same chat before OpenAI, Gemini and Bedrock.

The client's API is OpenAI's. One gateway has a model for each provider, so all of them share its process and its
state. Their points are short and interleaved. `bedrock-signed` is Bedrock with signed requests, and all others send a
key.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from loadtests.figures import rounds
from loadtests.figures.ratios import Summary, ratios, summarise, values
from loadtests.gateways import provider_stub as stub
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.replies import MODEL, CheckError, chat_body, http_request, post
from loadtests.gateways.workloads import Figure, Generator, Point, Workload, closed, request_file, streams
from loadtests.servers import Gateway, Launch, Site, Target, free_port

OPENAI = MODEL
_CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
_BEDROCK = {"protocol": {"name": "bedrock", "region": "eu-central-1"}, "model": _CLAUDE}
PROVIDERS: dict[str, dict[str, Any]] = {
    OPENAI: {"protocol": "openai", "key": "file:provider.key"},
    "gemini": {"protocol": "gemini", "model": "gemini-2.5-pro", "key": "file:provider.key"},
    "bedrock": {**_BEDROCK, "key": "file:provider.key"},
    "bedrock-signed": {**_BEDROCK, "credentials": {"aws": {"key_id": "file:id.key", "secret": "file:provider.key"}}},
}
"""The fields of each provider's pool, by the name of its model."""
SHORT, TOOLS, STREAM = "short", "ten turns with tools", f"a stream of {stub.CHUNKS} chunks"
REQUEST = Figure("request_us", lambda load, cpu: cpu / max(load.completed, 1) * 1e6)
CHUNK = Figure("chunk_us", lambda load, cpu: cpu / max(load.tokens, 1) * 1e6)
_STREAMS = replace(
    streams(8), figures=(CHUNK,), arguments=("stream", "--connections", "8", "--tokens", str(stub.CHUNKS))
)
CHATS: dict[str, Workload] = {
    SHORT: replace(closed(16), figures=(REQUEST,)),
    TOOLS: replace(closed(16), figures=(REQUEST,)),
    STREAM: _STREAMS,
}


def body(chat: str, model: str) -> bytes:
    """The request of a chat, in OpenAI's form."""
    fields = json.loads(chat_body(stream=chat == STREAM)) | {"model": model}
    if chat == TOOLS:
        fields |= {"tools": _tools(), "messages": _turns(fields["messages"])}
    return json.dumps(fields).encode()


def _tools() -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {
            "table": {"type": "string", "description": "The name of the table, with its schema."},
            "since": {"type": "string", "format": "date-time"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "order": {"type": "string", "enum": ["ascending", "descending"]},
        },
        "required": ["table"],
    }
    names = (stub.CALL, "run_query", "list_tables", "read_log", "open_ticket")
    about = "Reads rows of the warehouse and returns them as JSON, the newest first."
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}
        for name in names
    ]


def _turns(first: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ten turns: each a call, its result, the answer, and the next message of the user."""
    messages, result = list(first), json.dumps([{"run": run, "seconds": 14400 - run, "ok": True} for run in range(8)])
    for turn in range(10):
        function = {"name": stub.CALL, "arguments": json.dumps(stub.ARGUMENTS)}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
            {"role": "assistant", "content": stub.TEXT},
            {
                "role": "user",
                "content": f"And run {turn}? Compare it with the run before it, and look at the retries.",
            },
        ]
    return messages


def written(site: Site, admin_port: int) -> dict[str, Any]:
    """The configuration: one pool and one model for each provider, else as in `headrace.config`."""
    made = config(site, admin_port)
    pool, model = made["pools"][0], made["models"][0]
    rule, last = model["routes"]
    del last["split"]
    made["pools"] = [{**pool, **fields, "name": name} for name, fields in PROVIDERS.items()]
    made["models"] = [
        {**model, "name": name, "routes": [{**rule, "to": name}, {**last, "to": name}]} for name in PROVIDERS
    ]
    made["tenants"][0]["models"] = list(PROVIDERS)
    return made


def launch(site: Site, python: Path) -> Launch:
    """A gateway before all providers."""
    file = site.folder / "headrace.yaml"
    for name in ("provider", "id"):
        (site.folder / f"{name}.key").write_text("AKIDEXAMPLE0EXAMPLE0")
    file.write_text(yaml.safe_dump(written(site, free_port()), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


STUB = Gateway(
    "provider-stub",
    lambda: Path(sys.executable),
    lambda site, python: Launch([str(python), "-m", "loadtests.gateways.provider_stub", str(site.port)]),
)
GATEWAY = Gateway("headrace-providers", lambda: Path(sys.executable), launch, verbatim=False)


def targets(gateway: Target, generator: Generator, chat: str) -> list[Target]:
    """One for each provider, with its request written and its answer checked.

    Raises:
        CheckError: the answer of a provider is not that of the stub.
    """
    made = []
    for name in PROVIDERS:
        target = replace(gateway, gateway=replace(gateway.gateway, name=name))
        request = body(chat, name)
        (generator.folder / request_file(target, stream=chat == STREAM)).write_bytes(
            http_request(request, target.key, target.headers)
        )
        _check(chat, name, post(target.port, target.key, request, target.headers).body)
        made.append(target)
    return made


def _check(chat: str, name: str, answer: bytes) -> None:
    if chat == STREAM:
        right = answer.count(stub.TOKEN.encode()) == stub.CHUNKS and b"[DONE]" in answer
    else:
        whole = json.loads(answer)
        message, usage = whole.get("choices", [{}])[0].get("message", {}), whole.get("usage", {})
        calls = [each["function"] for each in message.get("tool_calls") or ()]
        named = [(each["name"], json.loads(each["arguments"])) for each in calls]
        right = named == ([(stub.CALL, stub.ARGUMENTS)] if chat == TOOLS else [])
        right = right and (chat == TOOLS or message.get("content") == stub.TEXT)
        right = right and (usage["prompt_tokens"], usage["completion_tokens"]) == (
            stub.PROMPT_TOKENS,
            stub.ANSWER_TOKENS,
        )
    if not right:
        raise CheckError(f"{name} answers {answer[:300]!r} to {chat}")


def measured(
    gateway: Target, generator: Generator, count: int, seconds: float, progress: Callable[[str], None]
) -> dict[str, Sequence[rounds.Round]]:
    """The rounds of each chat. A round with other work on the machine is used too: it adds to all providers."""

    def point(target: Target, chat: str) -> Point:
        seen = generator.measure(CHATS[chat], target, seconds)
        shown = ", ".join(f"{value:.1f} {name}" for name, value in seen.figures.items())
        progress(f"{chat}, {target.name}: {shown or f'{seen.failed} wrong or missing answers'}")
        return seen

    made: dict[str, Sequence[rounds.Round]] = {}
    for chat in CHATS:
        providers = targets(gateway, generator, chat)
        of = partial(point, chat=chat)
        made[chat] = rounds.run(providers, count, of, float("inf"), lambda: None).accepted
    return made


def prices(accepted: Mapping[str, Sequence[rounds.Round]]) -> dict[tuple[str, str], tuple[Summary, Summary]]:
    """For each chat and provider: µs a request or a chunk, and the ratio to OpenAI in the same round."""
    made: dict[tuple[str, str], tuple[Summary, Summary]] = {}
    for chat, all_rounds in accepted.items():
        figure = CHATS[chat].figures[0].name
        for name in PROVIDERS:
            own = summarise(values(all_rounds, name, figure))
            ratio = summarise(ratios(all_rounds, name, OPENAI, figure))
            if own is not None and ratio is not None:
                made[chat, name] = own, ratio
    return made


def print_table(accepted: Mapping[str, Sequence[rounds.Round]]) -> None:
    """Print the prices."""
    count = len(next(iter(accepted.values())))
    title = f"CPU time of a translated chat, {count} rounds: median (lowest–highest)"
    table = Table(title=title, title_justify="left")
    for column in ("chat", "provider", "µs a request, or a chunk", "÷ OpenAI"):
        table.add_column(column)
    for (chat, name), (own, ratio) in prices(accepted).items():
        shown = [f"{own.median:.1f} ({own.low:.1f}–{own.high:.1f})"]
        if name != OPENAI:
            shown.append(f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})")
        table.add_row(chat, "openai" if name == OPENAI else name, *shown)
    Console().print(table)
