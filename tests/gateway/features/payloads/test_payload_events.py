"""Payload events reach a real receiver as CloudEvents of KServe's logger, and never hold up a request."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.requests import ModelQuery, ModelRequest
from adapters.wire.cloudevents import CloudEvent, decode
from gateway.background import Background
from gateway.features.payloads import plane as planes
from gateway.features.payloads import sender as senders
from gateway.features.payloads.events import REQUEST, RESPONSE, http_headers
from gateway.features.payloads.metrics import PayloadMetrics
from gateway.features.payloads.plane import PayloadPlane
from gateway.features.payloads.sinks import BrokerSink
from gateway.telemetry import Record
from tests.support.brokers.memory import MemoryBroker
from tests.support.gateways import Rig, chat, config, infer
from tests.support.waiting import until

pytestmark = pytest.mark.realtime
WHOLE = Script((b'{"choices": [{"message": {"content": "sk-abcdefghijklmnopqrstuvwxyz012345"}}]}',))


class Receiver:
    """A server that stores events as the library of CloudEvents reads them."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status = 202
        self.held: asyncio.Event | None = None
        self.url = ""

    async def __call__(self, http: Request) -> Response:
        body = await http.read()
        if self.held is not None:
            await self.held.wait()
        headers = {name.lower(): value for name, value in http.headers.items()}
        self.headers.append(headers)
        if self.status < 300:
            self.events.append(from_http_event(HTTPMessage(headers, body)))
        return Response(self.status)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = Server(receiver)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    receiver.url = f"http://{host}:{port}/events"
    try:
        yield receiver
    finally:
        await server.aclose()


class PayloadRig(Rig):
    """A core whose requests for `chat` have events."""

    def __init__(self, events: dict[str, Any], script: Script | None = None) -> None:
        models = [
            {"name": "chat", "routes": [{"to": "main"}], "payload_events": events},
            {"name": "quiet", "routes": [{"to": "main"}]},
        ]
        super().__init__(config(models=models), {"main": [FakeAdapter(script) if script else FakeAdapter()]})
        self.background = Background()
        self.plane = PayloadPlane(self.background)
        self.plane.configure(self.core.snapshot.config)
        self.core.watchers = (self.plane.watch,)

    @property
    def sender(self) -> senders.PayloadSender:
        return self.plane.senders["chat"]

    async def send(self, request: ModelRequest, id_: str = "req-1") -> None:
        record = Record(id_, request.operation, "127.0.0.1", self.core.clock())
        try:
            answer = await self.core.handle(self.principal, request, {}, record)
        except BackendError as error:
            self.core.end(record, error)
            return
        async for _ in answer:
            pass

    async def idle(self) -> None:
        """Wait until the queue is empty: no event is lost then."""
        await until(lambda: not self.sender.waiting)

    async def counted(self, count: int) -> None:
        await until(lambda: self.sender.sent.total() + self.sender.lost.total() >= count)


@asynccontextmanager
async def rig(events: dict[str, Any], script: Script | None = None) -> AsyncIterator[PayloadRig]:
    one = PayloadRig(events, script)
    try:
        yield one
    finally:
        await one.plane.aclose()
        await one.background.cancel()
    one.assert_idle()


async def test_a_request_and_its_answer_are_two_events_of_one_id() -> None:
    async with receiving() as receiver, rig({"to": receiver.url, "key": "s3cret", "namespace": "prod"}, WHOLE) as one:
        await one.send(chat(stream=False, user="ann"), "req 7")
        await one.counted(2)
    by_type = {event.get_type(): event for event in receiver.events}
    assert by_type.keys() == {REQUEST, RESPONSE}
    for event in by_type.values():
        assert (event.get_id(), event.get_source()) == ("req 7", "/headrace/models/chat")
        assert event.get_specversion() == "1.0"
        assert event.get_datacontenttype() == "application/json"
        extensions = {name: event.get_extension(name) for name in ("inferenceservicename", "namespace", "component")}
        assert extensions == {"inferenceservicename": "chat", "namespace": "prod", "component": "predictor"}
        assert (event.get_extension("endpoint"), event.get_extension("metadata")) == ("default", "{}")
    assert by_type[REQUEST].get_time() <= by_type[RESPONSE].get_time()
    assert by_type[REQUEST].get_data()["messages"] == [{"role": "user", "content": "hello"}]
    assert "sk-abcdef" not in str(by_type[RESPONSE].get_data())
    assert {headers["authorization"] for headers in receiver.headers} == {"Bearer s3cret"}


@pytest.mark.parametrize(("mode", "kinds"), [("request", [REQUEST]), ("response", [RESPONSE])])
async def test_only_the_chosen_kind_is_sent(mode: str, kinds: list[str]) -> None:
    async with receiving() as receiver, rig({"to": receiver.url, "mode": mode}) as one:
        await one.send(chat())
        await one.counted(1)
    assert [event.get_type() for event in receiver.events] == kinds


async def test_a_stream_is_one_event_with_its_texts() -> None:
    pieces = [json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() for text in ("Hel", "lo")]
    script = Script(tuple(b"data: " + piece + b"\n\n" for piece in pieces))
    async with receiving() as receiver, rig({"to": receiver.url, "mode": "response"}, script) as one:
        await one.send(chat(stream=True))
        await one.counted(1)
    (event,) = receiver.events
    assert "Hello" in str(event.get_data())
    assert event.get_datacontenttype() == "application/json"


async def test_a_failed_request_has_no_answer_and_other_models_have_no_event() -> None:
    async with receiving() as receiver, rig({"to": receiver.url}, Script(fault=BackendError("no"))) as one:
        await one.send(chat("quiet"))
        await one.send(chat())
        await one.counted(1)
        await one.send(ModelQuery(model="chat"))
    assert [event.get_type() for event in receiver.events] == [REQUEST]
    assert one.sender.lost.total() == 0


async def test_a_share_of_requests_is_sampled() -> None:
    async with receiving() as receiver, rig({"to": receiver.url, "share": "50%", "mode": "request"}) as one:
        for at in range(400):
            await one.send(infer(), str(at))
            await one.idle()
    assert 100 < one.sender.sent["request"] < 300
    assert len({event.get_id() for event in receiver.events}) == len(receiver.events)


async def test_a_receiver_that_hangs_loses_events_and_holds_up_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "MOST_WAITING", 5)
    async with receiving() as receiver:
        receiver.held = asyncio.Event()
        async with rig({"to": receiver.url, "mode": "request"}) as one:
            for at in range(50):
                await one.send(chat(), str(at))
            assert one.sender.lost["queue"] >= 10
            receiver.held.set()
            await one.counted(50)
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in PayloadMetrics(one.plane).collect()
            for sample in family.samples
        }
        assert samples["headrace_payload_events_lost_total", "chat", "queue"] == one.sender.lost["queue"]
        assert samples["headrace_payload_events_total", "chat", "request"] == len(receiver.events)


async def test_a_receiver_that_refuses_is_logged_once_and_used_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(senders, "RETRY_SECONDS", 0.0)
    async with receiving() as receiver, rig({"to": receiver.url, "mode": "request"}) as one:
        receiver.status = 503
        for at in range(3):
            await one.send(chat(), str(at))
            await one.counted(at + 1)
        receiver.status = 200
        await one.send(chat(), "last")
        await one.counted(4)
    assert [event.get_id() for event in receiver.events] == ["last"]
    lines = [record.message for record in caplog.records if "payload events" in record.message]
    assert lines == [
        "payload events of chat are lost: status 503",
        "payload events of chat are sent again; 3 were lost",
    ]


async def test_a_topic_of_a_broker_receives_the_same_events(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    monkeypatch.setattr(planes, "make_sink", lambda events: BrokerSink(broker, events.topic))
    async with rig({"broker": "redis://127.0.0.1:9/0", "topic": "payloads"}) as one:
        await one.send(chat())
        await one.counted(2)
        broker.down = True
        await one.send(chat(), "lost")
        await one.counted(4)
    events = [decode(message.headers, message.body) for message in broker.published]
    assert [(event.type, event.id) for event in events if event] == [(REQUEST, "req-1"), (RESPONSE, "req-1")]
    assert {message.topic for message in broker.published} == {"payloads"}
    assert one.sender.lost["receiver"] == 2


async def test_a_reload_ends_the_senders_that_it_changes() -> None:
    async with receiving() as receiver, rig({"to": receiver.url}) as one:
        first = one.sender
        one.plane.configure(one.core.snapshot.config)
        assert one.sender is first
        one.plane.configure(config())
        assert one.plane.senders == {}
        one.core.watchers = ()


VALUES = st.text(min_size=1, max_size=50).filter(lambda text: text.isprintable())


@given(VALUES, VALUES, st.dictionaries(st.sampled_from(["namespace", "endpoint"]), VALUES))
def test_any_attribute_survives_the_headers(id_: str, model: str, extensions: dict[str, str]) -> None:
    event = CloudEvent(id_, f"/m/{model}", REQUEST, b"{}", "application/json", extensions)
    headers = http_headers(event)
    assert all(value.isascii() and value.isprintable() and " " not in value for value in headers.values())
    read = from_http_event(HTTPMessage(headers, b"{}"))
    assert (read.get_id(), read.get_source()) == (id_, f"/m/{model}")
    assert {name: read.get_extension(name) for name in extensions} == extensions
