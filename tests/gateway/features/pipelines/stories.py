"""Random pipelines over scripted servers on virtual time, and the invariants at the end of a request."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, ContextTooLong, InferenceError, Overloaded, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import Inferred, Tensor
from adapters.types import OPENAI, Form, Usage
from adapters.wire.oip import responses as oip_responses
from tests.gateway.features.pipelines.rigs import chat_script, chunks, floats, infer
from tests.support.gateways import Rig, chat, config

MODELS = "abcdef"
VECTORS = "v"
"""The model of embeddings, of stories with texts."""
DOCUMENTS = ["yes", "no"]
HANGS = 1e6
AFTERWARDS = 0.05
"""Seconds after the end of a request within which all of its work has ended."""
LIMIT = 10_000_000
FAULTS: tuple[InferenceError, ...] = (
    BackendError("broken"),
    TransportError("gone"),
    CallerError("wrong input"),
    ContextTooLong("too long"),
    Overloaded("full", retry_after=1),
)
METADATA = (
    b'{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],'
    b'"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]}]}'
)


class MeteredFake(FakeAdapter):
    """Records the usage that its calls have caused, as the contract of `Upstream` defines it."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(*scripts)
        self.whole: list[Usage] = []
        self.streams: list[Answer] = []
        self.abandoned: list[ModelRequest] = []
        """Requests that were cancelled before their answer began."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelQuery):
            return Answer(content_type="application/json", body=METADATA)
        try:
            answer = await super().call(request, call)
        except asyncio.CancelledError:
            self.abandoned.append(request)
            raise
        if answer.body is None:
            self.streams.append(answer)
        else:
            self.whole.append(replace(answer.usage))
        return answer

    def usages(self) -> list[Usage]:
        """The usage of each call that the client pays."""
        prompts = [Usage(prompt_tokens=each.prompt_tokens, rows=each.row_count) for each in self.abandoned]
        return [*self.whole, *(answer.usage for answer in self.streams), *prompts]


class Story:
    """One seed: a graph, its servers, a client, and what went wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.tensors = self.rng.random() < 0.5
        self.is_stream = not self.tensors and self.rng.random() < 0.5
        self.fakes = {name: MeteredFake(*self._scripts()) for name in MODELS}
        if not self.tensors:
            self.fakes[VECTORS] = MeteredFake(*[self._vectors() for _ in range(2)])
        self._names = 0
        self.nested = [{"name": f"inner{i}", "pipeline": self._pipeline(2, MODELS)} for i in range(2)]
        self.pipeline = self._pipeline(3, [*MODELS, "inner0", "inner1"])
        self.wrong: list[str] = []
        self.outcome = ""
        self.ends: set[str] = set()

    # ── servers ───────────────────────────────────────────────────────────────────────────────────────

    def _scripts(self) -> list[Script]:
        return [self._script() for _ in range(self.rng.randint(1, 3))]

    def _script(self) -> Script:
        rng = self.rng
        latency = rng.choice(
            (0.0, 0.0, 0.01, 0.1, rng.random(), rng.random() * 3, HANGS if rng.random() < 0.3 else 0.0)
        )
        fault = rng.choice(FAULTS) if rng.random() < 0.25 else None
        usage = Usage(rng.randint(0, 99), rng.randint(0, 99), exact=rng.random() < 0.5, rows=rng.randint(0, 3))
        fault = None if fault is None else type(fault)(fault.message, **_fields(fault))
        if self.tensors:
            value = rng.choice((0.0, 0.3, 0.6, 1.0, float("nan")))
            shape = rng.choice(((1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (0, 2), (2, 2), (1, 3)))
            return _tensors(value, shape, latency=latency, fault=fault, usage=usage)
        text = rng.choice(("yes", "no", "maybe so", ""))
        if self.is_stream:
            after = rng.randint(0, 4)
            pieces = chunks(*text.split(" "), " ", "end")
            gap = rng.choice((0.0, 0.01, 0.5, HANGS if rng.random() < 0.2 else 0.1))
            return Script(chunks=pieces, latency=latency, gap=gap, fault=fault, fault_after=after, usage=usage)
        made = chat_script(text, rng.choice(("stop", "length", "tool_calls", "strange")), latency=latency, fault=fault)
        return replace(made, usage=usage)

    def _vectors(self) -> Script:
        """The embeddings of a query and the documents, now and then too few."""
        rng = self.rng
        rows = rng.choice((1, 2, 2, 2, 2)) + 1
        data = [{"object": "embedding", "index": row, "embedding": [rng.random(), 1.0]} for row in range(rows)]
        body = json.dumps({"object": "list", "data": data, "usage": {}}).encode()
        return replace(self._script(), chunks=(body,), form=OPENAI)

    # ── graphs ────────────────────────────────────────────────────────────────────────────────────────

    def _pipeline(self, depth: int, models: Any) -> dict[str, Any]:
        made = self._node(depth, list(models), [])
        if self.rng.random() < 0.4:
            made["deadline"] = f"{self.rng.choice((1, 50, 500, 2000))}ms"
        return made

    def _node(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        kinds = ["model"] if depth <= 0 else ["model", "steps", "steps", "ensemble", "switch", "cascade"]
        kinds += ["judge", "agree"] if depth > 0 and not self.tensors else []
        kind = self.rng.choice(kinds)
        if kind == "model":
            return {"model": self.rng.choice(models)}
        made: dict[str, Any] = getattr(self, f"_{kind}")(depth - 1, models, earlier)
        return made

    def _name(self) -> str:
        self._names += 1
        return f"s{self._names}"

    def _steps(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        rng, steps, own = self.rng, list[dict[str, Any]](), list[str]()
        for _ in range(rng.randint(1, 4)):
            name = self._name()
            step = {"name": name, **self._node(depth, models, [*earlier, *own])}
            if own or rng.random() < 0.5:
                step["in"] = self._inputs([*own[-1:]] * 2 + [*earlier, *own])
            if rng.random() < 0.3:
                step["on_error"] = rng.choice(("skip", {"use": self._fixed()}))
            if self.tensors and rng.random() < 0.2:
                step |= {"each": True, "at_most": rng.randint(1, 3)}
                step.setdefault("in", {"x": "request.x"})
            if rng.random() < 0.1:
                step["at_least"] = "200ms"
            steps.append(step)
            own.append(name)
            if not self.tensors and rng.random() < 0.3:
                steps += self._texts([*earlier, *own])
                own.append(steps[-1]["name"])
        made: dict[str, Any] = {"steps": steps}
        if not self.tensors and rng.random() < 0.3:
            steps.insert(0, self._guard("request", models))
        if not self.tensors and rng.random() < 0.4:
            steps.append(self._guard("answer", models))
        elif rng.random() < 0.4:
            field = "y" if self.tensors else "text"
            made["out"] = {field: f"{rng.choice(own)}.{field}"}
        return made

    def _texts(self, earlier: list[str]) -> list[dict[str, Any]]:
        """A text from a template, of an earlier text or of the best of the request's documents."""
        rng, name = self.rng, self._name()
        source = f"{rng.choice(('request', rng.choice(earlier)))}.text"
        if rng.random() < 0.3:
            return [{"name": name, "in": {"text": source}, "template": "{{ text }}"}]
        best = self._name()
        inputs = {"query": source, "candidates": "request.documents"}
        reranked: dict[str, Any] = {"name": best, "in": inputs, "rerank": {"embed": VECTORS, "top": 2}}
        if rng.random() < 0.3:
            reranked["on_error"] = rng.choice(("skip", {"use": {"candidates": ["no"]}}))
        text = {"name": name, "in": {"found": f"{best}.candidates"}, "template": "{{ found | join }}"}
        return [reranked, text]

    def _guard(self, on: str, models: list[str]) -> dict[str, Any]:
        rng = self.rng
        config = {"model": rng.choice(models), "block_if": 'text == "no"', "on": on}
        step: dict[str, Any] = {"name": self._name(), "guard": {**config, "window": 2, "overlap": 1}}
        if rng.random() < 0.3:
            step["on_error"] = "skip"
        if rng.random() < 0.2:
            step["at_least"] = "200ms"
        return step

    def _inputs(self, steps: list[str]) -> dict[str, str]:
        source = self.rng.choice([*steps, "request"])
        if self.tensors:
            return {"x": f"{source}.{'x' if source == 'request' else 'y'}"}
        return {"prompt": f"{source}.text"}

    def _fixed(self) -> dict[str, Any]:
        return {"y": [0.5, 0.5]} if self.tensors else {"text": "nothing", "finish": "stop", "tokens": 1}

    def _ensemble(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        rng, count = self.rng, self.rng.randint(2, 4)
        members = []
        for _ in range(count):
            member = {"name": self._name(), **self._node(min(depth, 1), models, earlier)}
            if rng.random() < 0.3:
                member["weight"] = rng.choice((0.5, 2, 3))
            members.append(member)
        combines = ("vote", "mean", "concat", "first") if self.tensors else ("vote", "concat", "first")
        made: dict[str, Any] = {"members": members, "combine": rng.choice(combines)}
        if rng.random() < 0.6:
            made["need"] = rng.randint(1, count)
        if rng.random() < 0.4:
            made["within"] = f"{rng.choice((1, 20, 300))}ms"
        return {"ensemble": made}

    def _switch(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        branches = [
            {"if": self._condition(earlier), **self._node(depth, models, earlier)}
            for _ in range(self.rng.randint(1, 2))
        ]
        return {"switch": [*branches, {"else": True, **self._node(depth, models, earlier)}]}

    def _condition(self, earlier: list[str]) -> str:
        source = self.rng.choice([*earlier, "request"])
        if self.tensors:
            return f"max({source}.{'x' if source == 'request' else 'y'}) > 0.5"
        return "request.prompt_tokens > 3" if source == "request" else f'{source}.text == "yes"'

    def _cascade(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        rng, stages = self.rng, list[dict[str, Any]]()
        for _ in range(rng.randint(1, 2)):
            node = self._node(min(depth, 1), models, earlier)
            texts = ("finish == stop", 'text != "no"', "tokens > 1") if "model" in node else ('text != "no"',)
            accept = "max(y) > 0.5" if self.tensors else rng.choice(texts)
            stage = {"name": self._name(), "accept_if": accept, **node}
            if rng.random() < 0.5:
                stage["hold"] = rng.randint(1, 4)
            stages.append(stage)
        return {"cascade": [*stages, {"name": self._name(), **self._node(min(depth, 1), models, earlier)}]}

    def _judge(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        rng = self.rng
        made = {**self._drafts(depth, models, earlier), "model": rng.choice(models), "both_orders": rng.random() < 0.5}
        return {"judge": {**made, "else": rng.choice(("first", "fail"))}}

    def _agree(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        return {"agree": {**self._drafts(depth, models, earlier), "by": self.rng.choice(("text", "number", "edit"))}}

    def _drafts(self, depth: int, models: list[str], earlier: list[str]) -> dict[str, Any]:
        count = self.rng.randint(1, 3)
        of = [{"name": self._name(), **self._node(min(depth, 1), models, earlier)} for _ in range(count)]
        return {"of": of, "n": 2 if count == 1 else self.rng.choice((1, 1, 2))}

    # ── the request ───────────────────────────────────────────────────────────────────────────────────

    def configuration(self) -> dict[str, Any]:
        """The sections of the file, apart from the version."""
        rng = self.rng
        pools: list[dict[str, Any]] = []
        for name in self.fakes:
            pool: dict[str, Any] = {"name": name, "endpoints": ["http://127.0.0.1:9"]}
            if self.tensors:
                pool["protocol"] = "oip-http"
            if rng.random() < 0.2:
                pool |= {"queue": {"max_in_flight": 1, "timeout": "1s"}}
            pools.append(pool)
        route = {"retry": {"attempts": rng.choice((1, 2))}, "timeout": {"first_byte": "5s", "idle": "2s"}}
        models = [
            {"name": name, "routes": [{"to": name, **route}], "price": {"request": "1 usd"}} for name in self.fakes
        ]
        limits = [{"tokens": f"{LIMIT}/d"}, {"requests": "2/d", "models": ["a"], "per": "tenant"}]
        return {
            "pools": pools,
            "models": [*models, *self.nested, {"name": "whole", "pipeline": self.pipeline}],
            "tenants": [{"name": "acme", "models": ["*"], "limits": limits}],
        }

    async def play(self) -> None:
        """Send one request, let the client leave or read to the end, and check everything."""
        one = Rig(config(**self.configuration()), {name: [fake] for name, fake in self.fakes.items()}, self.seed)
        before, record = asyncio.all_tasks(), one.record()
        patience = self.rng.choice((None, None, None, 0.0, 0.005, 0.01, 0.1, 0.2, 0.5, 1.0))
        started = one.core.clock()
        client = asyncio.create_task(self._client(one, record))
        if patience is not None:
            await asyncio.wait([client], timeout=patience)
            client.cancel()
        await asyncio.wait([client], timeout=1000)
        self._check(client.done(), "the request never ends")
        self.outcome = _outcome(client)
        ended = one.core.clock()
        calls = sum(len(fake.calls) for fake in self.fakes.values())
        await asyncio.sleep(AFTERWARDS)
        self._check(asyncio.all_tasks() <= before, "tasks run on", asyncio.all_tasks() - before)
        self._check(sum(len(fake.calls) for fake in self.fakes.values()) == calls, "calls start after the end")
        try:
            one.assert_idle()
        except AssertionError as error:
            self.wrong.append(f"not idle: {error}")
        self._check(len(one.log.records) == 1 and record.ended == ended, "the log", len(one.log.records), record.ended)
        self._charged(one, record, one.core.clock() - started)
        self.ends = {step.outcome for step in record.trace.steps}

    async def _client(self, one: Rig, record: Any) -> None:
        chats = chat("whole", stream=self.is_stream, max_tokens=10, documents=DOCUMENTS)
        request = infer(floats("x", 0.7, 0.2)) if self.tensors else chats
        try:
            answer = await one.core.handle(one.principal, request, {}, record)
        except BaseException as error:
            one.core.end(record, error)
            raise
        try:
            async for _ in answer:
                pass
        finally:
            await answer.aclose()

    # ── what must be true ─────────────────────────────────────────────────────────────────────────────

    def _check(self, holds: bool, *facts: Any) -> None:
        if not holds:
            self.wrong.append(" ".join(map(str, facts)))

    def _charged(self, one: Rig, record: Any, seconds: float) -> None:
        """The bill is that of the servers' answers, once."""
        usages = [usage for fake in self.fakes.values() for usage in fake.usages()]
        expected = (
            sum(each.prompt_tokens for each in usages),
            sum(each.completion_tokens for each in usages),
            sum(each.rows for each in usages),
        )
        usage = record.usage or Usage()
        actual = (usage.prompt_tokens, usage.completion_tokens, usage.rows)
        retried = any(name == "retry" for name, _ in record.trace.events)
        self._check(actual == expected or retried, "usage", actual, "of", expected)
        steps = [step.usage for step in record.trace.steps if step.usage is not None]
        self._check(
            actual[:2] == (sum(s.prompt_tokens for s in steps), sum(s.completion_tokens for s in steps)),
            "the sum of the steps is not the usage",
        )
        cost = 0 if record.cost is None else record.cost.picos // 10**12
        self._check(cost == len(usages) or retried, "cost", cost, "of", len(usages))
        charged, refilled = LIMIT - one.left("tokens"), LIMIT / 86400 * (seconds + 1)
        due = sum(actual[:2])
        if isinstance(record.error, ContextTooLong) and record.usage is None:
            due = charged  # the estimated prompt
        self._check(due - refilled <= charged <= due + 1, "the ledger", charged, "of", actual)


def _outcome(client: "asyncio.Task[None]") -> str:
    if not client.done() or client.cancelled():
        return "left"
    error = client.exception()
    return "whole" if error is None else type(error).__name__


def _fields(fault: InferenceError) -> dict[str, Any]:
    return {"retry_after": 1} if isinstance(fault, Overloaded) else {}


def _tensors(value: float, shape: tuple[int, int], **script: Any) -> Script:
    data = floats("", *[value] * (shape[0] * shape[1])).data
    body, length = oip_responses.encode_response(Inferred("m", outputs=[Tensor("y", "FP32", shape, data)]), True)
    return Script(chunks=(body,), form=Form("oip-http", length), **script)
