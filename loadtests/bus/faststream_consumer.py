"""The same consumer with FastStream: it posts each message to the server, and publishes the answer."""

import asyncio
import os

import aiohttp
from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

broker = KafkaBroker(os.environ["BROKER"], acks="all")
app = FastStream(broker)
workers = int(os.environ["WORKERS"])
sessions: list[aiohttp.ClientSession] = []


@broker.subscriber(os.environ["TOPIC"], group_id="faststream", auto_offset_reset="earliest", max_workers=workers)
async def answer(message: KafkaMessage) -> None:
    if not sessions:
        sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)))
    headers = {"content-type": "application/json"}
    async with sessions[0].post(os.environ["SERVER"], data=message.body, headers=headers) as response:
        body = await response.read()
    attributes = {
        "ce_specversion": "1.0",
        "ce_id": f"answer-{message.headers['ce_id']}",
        "ce_source": "/faststream",
        "ce_type": "answer",
        "ce_status": str(response.status),
    }
    await broker.publish(body, os.environ["ANSWERS"], headers=attributes, correlation_id=message.headers["ce_id"])


asyncio.run(app.run())
