"""A thin server before transformers' `generate`: it takes those that wait, 32 at most, and answers them all in one
padded batch, which lasts as long as its longest answer. Run by the interpreter of an environment that has it.
"""

import asyncio
import sys
from typing import Any

import msgspec
import torch
from aiohttp import web
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer

MOST = 32
GATHER_S = 0.1


class Waiting:
    """A request, and the queue that its tokens go to."""

    def __init__(self, prompt: list[int], max_tokens: int) -> None:
        self.prompt, self.max_tokens = prompt, max_tokens
        self.tokens: asyncio.Queue[int] = asyncio.Queue()


class Streamer(BaseStreamer):  # type: ignore[misc]
    """Hands each step's tokens to the event loop. `generate` shows it the prompts first."""

    def __init__(self, batch: list[Waiting], loop: asyncio.AbstractEventLoop) -> None:
        self._batch, self._loop = batch, loop
        self._step = -1

    def put(self, value: Any) -> None:
        self._step += 1
        if self._step:
            self._loop.call_soon_threadsafe(self._deliver, value.tolist(), self._step)

    def _deliver(self, tokens: list[int], step: int) -> None:
        for one, token in zip(self._batch, tokens, strict=True):
            if step <= one.max_tokens:
                one.tokens.put_nowait(token)

    def end(self) -> None:
        """Nothing: every answer knows its length."""


class Server:
    """One model, one batch at a time."""

    def __init__(self, folder: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self._waiting: asyncio.Queue[Waiting] = asyncio.Queue()

    async def generate(self) -> None:
        """Batch after batch."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            until = loop.time() + GATHER_S
            while len(batch) < MOST and (left := until - loop.time()) > 0:
                try:
                    batch.append(await asyncio.wait_for(self._waiting.get(), left))
                except TimeoutError:
                    break
            await asyncio.to_thread(self._run, batch, Streamer(batch, loop))

    def _run(self, batch: list[Waiting], streamer: Streamer) -> None:
        width, longest = max(len(one.prompt) for one in batch), max(one.max_tokens for one in batch)
        ids = torch.tensor([[0] * (width - len(one.prompt)) + one.prompt for one in batch])
        mask = torch.tensor([[0] * (width - len(one.prompt)) + [1] * len(one.prompt) for one in batch])
        with torch.inference_mode():
            self._model.generate(
                ids, attention_mask=mask, max_new_tokens=longest, min_new_tokens=longest, do_sample=False,
                pad_token_id=0, streamer=streamer,
            )  # fmt: skip

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/completions` with token ids, as a stream."""
        body = msgspec.json.decode(await request.read())
        waiting = Waiting(list(body["prompt"]), int(body["max_tokens"]))
        self._waiting.put_nowait(waiting)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for index in range(waiting.max_tokens):
            text = self._tokenizer.decode([await waiting.tokens.get()])
            reason = "length" if index == waiting.max_tokens - 1 else None
            await self._send(response, {"choices": [{"index": 0, "text": text, "finish_reason": reason}]})
        counts = {"prompt_tokens": len(waiting.prompt), "completion_tokens": waiting.max_tokens}
        await self._send(response, {"choices": [], "usage": counts})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _send(self, response: web.StreamResponse, event: dict[str, Any]) -> None:
        await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")


async def serve(folder: str, port: int) -> None:
    """Until the process is ended."""
    server = Server(folder)
    app = web.Application()
    app.router.add_post("/v1/completions", server.completions)
    app.router.add_get("/health", lambda _: _ok())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await server.generate()


async def _ok() -> web.Response:
    return web.Response(text="ok")


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
