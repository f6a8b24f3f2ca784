"""Chats with pictures over HTTP: their tokens, their answers, and the files that are refused."""

import asyncio
import json
import struct
import threading
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from adapters import offload
from adapters.errors import CallerError, CapacityError
from runtimes.llm.api import messages, pictures
from runtimes.llm.api.messages import PicturePart
from runtimes.llm.api.request_decoding import decode_chat
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.engine.async_engine import EngineConfig
from runtimes.llm.service import load
from runtimes.llm.vision.tiles import file_of
from tests.runtimes.llm.reference import TIE
from tests.runtimes.llm.server_fixtures import MODEL, Running, options_of, post, serving_model
from tests.support.conditions import until
from tests.support.seeing_models import SeeingModel, encoded, picture, write_seeing_model

CHAT = "/v1/chat/completions"
GREEDY = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> SeeingModel:
    return write_seeing_model(tmp_path_factory.mktemp("seeing"))


def loaded(model: SeeingModel, **bounds: Any) -> LoadedModel:
    how = {"kv_cache_bytes": 1 << 22, "max_num_seqs": 4, "max_num_batched_tokens": 40} | bounds
    return load(options_of(model.folder, engine_config=partial(EngineConfig, dtype="float32", executor="torch", **how)))


@pytest.fixture
async def server(seeing: SeeingModel) -> AsyncIterator[Running]:
    async with serving_model(loaded(seeing)) as running:
        yield running
        assert held(running) == 0


@pytest.fixture
def reader(seeing: SeeingModel) -> pictures.PictureReader:
    model = loaded(seeing)
    assert isinstance(model.pictures, pictures.PictureReader)
    return model.pictures


def reader_of(running: Running) -> pictures.PictureReader:
    model = running.app.model
    assert model is not None
    assert isinstance(model.pictures, pictures.PictureReader)
    return model.pictures


def held(running: Running) -> int:
    return reader_of(running).held


def url(file: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(file).decode()}"


def part(file: bytes, **detail: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(file), **detail}}


def chat(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], **GREEDY, **fields}


TEXT = {"type": "text", "text": "Which is it?"}
FILE = encoded(picture(100, 60))


def prompt_of(model: SeeingModel, body: dict[str, Any], *images: Image.Image) -> Any:
    """transformers' prompt."""
    turns = [
        {"role": turn["role"], "content": [{"type": "image"} if one["type"] == "image_url" else one for one in
         turn["content"]]} for turn in body["messages"]
    ]  # fmt: skip
    text = model.processor.apply_chat_template(turns, add_generation_prompt=True)
    return model.processor(images=list(images), text=[text], return_tensors="pt")


@torch.inference_mode()  # type: ignore[untyped-decorator]
def assert_greedy(model: SeeingModel, inputs: Any, answer: list[int]) -> None:
    """Each token is the likeliest of transformers after all before it, or as likely."""
    length = inputs["input_ids"].shape[1]
    ids = torch.cat([inputs["input_ids"], torch.tensor([answer[:-1]], dtype=torch.int64)], dim=1)
    logits = model.model(**{**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}).logits[0, length - 1 :]
    behind = logits.amax(dim=-1) - logits[torch.arange(len(answer)), torch.tensor(answer)]
    assert behind.max() < TIE


async def test_an_answer_is_that_of_transformers_and_pictures_count_as_tokens(
    server: Running, seeing: SeeingModel
) -> None:
    first, second = picture(100, 60), picture(28, 90, 1)
    body = chat(part(encoded(first)), TEXT, part(encoded(second)))
    status, _, answer = await post(server, CHAT, body | {"return_token_ids": True})
    assert status == 200
    inputs = prompt_of(seeing, body, first, second)
    assert answer["usage"]["prompt_tokens"] == inputs["input_ids"].shape[1]
    assert_greedy(seeing, inputs, answer["choices"][0]["token_ids"])
    counted = await post(server, "/tokenize", {"messages": body["messages"]})
    assert counted[2]["tokens"] == inputs["input_ids"][0].tolist()


async def test_a_stream_has_the_same_text(server: Running) -> None:
    body = chat(TEXT, part(FILE))
    _, _, whole = await post(server, CHAT, body)
    stream = await server.client.chat.completions.create(
        model=MODEL, messages=body["messages"], max_tokens=12, temperature=0, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == whole["choices"][0]["message"]["content"]


async def test_the_same_picture_is_cached_and_another_of_its_size_is_not(server: Running, seeing: SeeingModel) -> None:
    body, other = chat(part(FILE), TEXT), picture(100, 60, 5)
    first = (await post(server, CHAT, body))[2]
    again = (await post(server, CHAT, body))[2]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > first["usage"]["prompt_tokens"] - 17
    assert again["choices"] == first["choices"]
    body = chat(part(encoded(other)), TEXT, return_token_ids=True)
    answer = (await post(server, CHAT, body))[2]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert_greedy(seeing, prompt_of(seeing, body, other), answer["choices"][0]["token_ids"])


async def test_the_encoder_computes_a_picture_once_for_each_salt(
    seeing: SeeingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(seeing, prefix_cache=False)
    assert isinstance(model.pictures, pictures.PictureReader)
    computed, rows, loop = list[bytes](), model.pictures._tower.rows, threading.get_ident()

    def counted(tile: bytes) -> torch.Tensor:
        assert threading.get_ident() != loop
        computed.append(tile)
        return rows(tile)

    monkeypatch.setattr(model.pictures._tower, "rows", counted)
    async with serving_model(model) as running:
        for salt, tiles in (("a", 7), ("a", 7), ("b", 14), ("b", 14)):
            assert (await post(running, CHAT, chat(part(FILE), TEXT, cache_salt=salt)))[0] == 200
            assert len(computed) == tiles
        monkeypatch.setattr(pictures, "MAX_CACHED", 0)
        for tiles in (21, 28):
            await post(running, CHAT, chat(part(FILE), TEXT, cache_salt="c"))
            assert len(computed) == tiles


async def test_requests_that_wait_for_the_same_picture_compute_it_once(
    reader: pictures.PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, gate = list[bytes](), threading.Event()
    rows = reader._tower.rows

    def slow(tile: bytes) -> torch.Tensor:
        computed.append(tile)
        assert gate.wait(timeout=300)
        return rows(tile)

    monkeypatch.setattr(reader._tower, "rows", slow)
    sent = [PicturePart("image_url", url=url(FILE), detail=None, param="p")]
    requests = [await reader.read(sent) for _ in range(8)]
    answers = asyncio.gather(*[request.rows(b"salt") for request in requests])
    await until(lambda: reader._thread._waiting.count("") == 7)
    gate.set()
    embedded = await answers
    assert len(computed) == len(set(computed)) == 7
    for one in embedded:
        assert all(map(torch.equal, one.rows, embedded[0].rows))
    for request in requests:
        request.release()


async def test_texts_and_pictures_are_answered_together(server: Running, seeing: SeeingModel) -> None:
    image = [picture(60 + 20 * seed, 60, seed) for seed in range(3)]
    bodies = [chat(part(encoded(one)), TEXT, return_token_ids=True) for one in image]
    texts = [chat({"type": "text", "text": f"{n} words"}, return_token_ids=True) for n in range(3)]
    answers = await asyncio.gather(*[post(server, CHAT, body) for body in (*bodies, *texts)])
    assert [status for status, _, _ in answers] == [200] * 6
    for body, one, (_, _, answer) in zip(bodies, image, answers, strict=False):
        assert_greedy(seeing, prompt_of(seeing, body, one), answer["choices"][0]["token_ids"])


async def test_an_answer_is_continued_after_its_picture(server: Running) -> None:
    body = chat(part(FILE), TEXT, return_token_ids=True)
    token_ids = (await post(server, CHAT, body))[2]["choices"][0]["token_ids"]
    stream = await server.client.chat.completions.create(
        model=MODEL, messages=body["messages"], max_tokens=12, temperature=0, stream=True,
        extra_body={"ignore_eos": True, "return_token_ids": True, "continue_token_ids": token_ids[:5]},
    )  # fmt: skip
    rest = [
        token
        async for chunk in stream
        for choice in chunk.choices
        for token in getattr(choice, "token_ids", None) or ()
    ]
    assert rest == token_ids[5:]


async def test_responses_take_input_images(server: Running) -> None:
    given = [{"role": "user", "content": [{"type": "input_image", "image_url": url(FILE)},
              {"type": "input_text", "text": "Which is it?"}]}]  # fmt: skip
    status, _, answer = await post(server, "/v1/responses", {"input": given, "max_output_tokens": 4, "temperature": 0})
    assert status == 200
    expected = (await post(server, CHAT, chat(part(FILE), TEXT)))[2]
    assert answer["usage"]["input_tokens"] == expected["usage"]["prompt_tokens"]
    given[0]["content"][0]["image_url"] = url(b"no picture")  # type: ignore[index]
    status, _, answer = await post(server, "/v1/responses", {"input": given})
    assert status == 400
    assert answer["error"]["param"] == "input"
    assert answer["error"]["message"].startswith("Picture 1 of the request: `input` is not a JPEG")


async def test_a_detail_is_reported_as_ignored(server: Running) -> None:
    for detail, ignored in (("low", "detail"), ("auto", None)):
        status, headers, _ = await post(server, CHAT, chat(part(FILE, detail=detail), TEXT))
        assert (status, headers.get("x-headrace-ignored")) == (200, ignored)


async def test_the_words_of_marks_are_text(server: Running) -> None:
    marked = "<fake_token_around_image><global-img><image><image>"
    body = chat(part(FILE), {"type": "text", "text": marked})
    plain = chat(part(FILE), {"type": "text", "text": "x" * len(marked)})
    counts = [(await post(server, CHAT, one))[2]["usage"]["prompt_tokens"] for one in (body, plain)]
    assert counts[0] == counts[1]


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=8), st.booleans())
@settings(deadline=None)
def test_parts_keep_their_order_also_where_they_are_too_many(given_parts: list[str | None], many: bool) -> None:
    """None is a picture."""
    most = 1 if many else messages.MAX_PARTS
    parts = [{"type": "text", "text": one} if one is not None else part(b"x") for one in given_parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "MAX_PARTS", most)
        [turn] = decode_chat(json.dumps(chat(*parts)).encode()).messages
    names = [f"messages[0].content[{index}].image_url" for index, one in enumerate(given_parts) if one is None]
    assert [picture.param for picture in turn.pictures] == names
    content = turn.for_template()["content"]
    if isinstance(content, str):
        assert (names, content) == ([], "\n".join([one or "" for one in given_parts]))
        return
    assert [one["type"] for one in content].count("image") == len(names)
    rendered = ["<image>" if one["type"] == "image" else one["text"] for one in content]
    expected = [one if one is not None else "<image>" for one in given_parts]
    assert rendered == expected or "\n".join(rendered) == "\n".join(expected)


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────


def _png_bomb() -> bytes:
    """A file of some hundred bytes that declares 65,000 × 65,000 pixels."""
    head = struct.pack(">IIBBBBB", 65_000, 65_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


REFUSED: list[tuple[str, Callable[[], str], str]] = [
    ("bomb", lambda: url(_png_bomb()), "pixels"),
    ("truncated", lambda: url(FILE[: len(FILE) // 2]), "truncated or damaged"),
    ("other file", lambda: url(b"%PDF-1.7"), "not a JPEG, PNG, WebP or GIF picture"),
    ("other format", lambda: url(encoded(picture(4, 4), "BMP")), "not a JPEG, PNG, WebP or GIF picture"),
    ("empty", lambda: url(b""), "not a JPEG, PNG, WebP or GIF picture"),
    ("not base64", lambda: "data:image/png;base64,@@", "not base64"),
    ("not encoded", lambda: "data:image/png,abc", "not base64"),
    ("http", lambda: "https://example.com/a.png", "is a URL, and files are not fetched"),
    ("file", lambda: "file:///etc/passwd", "is a URL, and files are not fetched"),
    ("no ASCII", lambda: "data:image/png;base64,ünï", "not base64"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_file_is_refused_by_the_name_of_its_part(
    server: Running, make: Callable[[], str], message: str
) -> None:
    wrong = {"type": "image_url", "image_url": {"url": make()}}
    status, _, answer = await post(server, CHAT, chat(part(FILE), TEXT, wrong))
    assert status == 400
    assert answer["error"]["param"] == "messages[0].content[2].image_url"
    assert answer["error"]["message"].startswith("Picture 2 of the request: ")
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"type": "image_url"}, "messages[0].content[0].image_url"),
        ({"type": "image_url", "image_url": {"detail": "low"}}, "messages[0].content[0].image_url.url"),
        ({"type": "image_url", "image_url": 7}, "messages[0].content[0].image_url"),
        ({"type": "video_url", "video_url": {"url": "data:,"}}, "messages[0].content[0].type"),
        ({**TEXT, "image_url": {"url": url(FILE)}}, "messages[0].content[0].image_url"),
        ({"type": "refusal", "refusal": "a", "image_url": url(FILE)}, "messages[0].content[0].image_url"),
        ({"type": "thinking", "thinking": "a", "image_url": url(FILE)}, "messages[0].content[0].image_url"),
        ({"type": "thinking", "thinking": [part(FILE)]}, "image_url"),
        ({"type": "thinking", "thinking": [{**TEXT, "image_url": url(FILE)}]}, "image_url"),
        ({"type": "thinking", "thinking": [{"type": "image_url"}]}, "messages[0].content[0].thinking[0].type"),
    ],
)
async def test_a_part_of_another_form_is_refused(server: Running, wrong: dict[str, Any], param: str) -> None:
    status, _, answer = await post(server, CHAT, chat(wrong))
    assert (status, answer["error"]["param"]) == (400, param)


async def test_a_text_without_a_picture_may_have_the_empty_field_of_one(server: Running) -> None:
    for empty in (None, ""):
        assert (await post(server, CHAT, chat({**TEXT, "image_url": empty})))[0] == 200


async def test_too_many_pictures_or_pixels_are_refused(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    small = part(encoded(picture(2, 2)))
    monkeypatch.setattr(pictures, "MAX_PICTURES", 2)
    status, _, answer = await post(server, CHAT, chat(small, small, small))
    assert (status, answer["error"]["param"]) == (400, "messages[0].content[2].image_url")
    monkeypatch.setattr(pictures, "MAX_PICTURES", 64)
    monkeypatch.setattr(pictures, "MAX_WORK", 60_000)
    status, _, answer = await post(server, CHAT, chat(small, part(encoded(picture(300, 300)))))
    assert (status, answer["error"]["code"]) == (400, "invalid_image")
    assert answer["error"]["param"] == "messages[0].content[1].image_url"


async def test_pictures_of_too_much_work_are_refused_unread(
    reader: pictures.PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = reader._tower.settings.tiles.work
    monkeypatch.setattr(pictures, "MAX_WORK", 4 * least - 1)
    read = list[str]()

    def counted(*given: Any) -> Any:
        read.append(given[-1])
        return file_of(*given)

    monkeypatch.setattr(pictures, "file_of", counted)
    small = [PicturePart("image_url", url=url(encoded(picture(1, 1))), detail=None, param=f"p{n}") for n in range(4)]
    with pytest.raises(CallerError, match="`p3` is one picture too many: send 3 at most"):
        await reader.read(small)
    assert read == []
    (await reader.read(small[:3])).release()
    assert read == ["p0", "p1", "p2"]


async def test_pictures_that_do_not_fit_the_context_are_refused(server: Running) -> None:
    small = part(encoded(picture(2, 2)))
    for count in (20, 40):  # before they are decoded, and after
        status, _, answer = await post(server, CHAT, chat(*[small] * count))
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    status, _, answer = await post(server, CHAT, chat(*[small] * 14))
    assert status == 200
    status, _, answer = await post(server, CHAT, chat(*[small] * 14, max_tokens=400))
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_picture_that_the_template_leaves_out_is_refused(seeing: SeeingModel, tmp_path: Path) -> None:
    model = write_seeing_model(tmp_path)
    template = tmp_path / "chat_template.jinja"
    template.write_text(template.read_text().replace("line['type'] == 'image'", "false"))
    async with serving_model(loaded(model)) as running:
        status, _, answer = await post(running, CHAT, chat(part(FILE), TEXT))
        assert status == 400
        assert "takes 0 of the 1 pictures" in answer["error"]["message"]
        assert held(running) == 0


async def test_memory_for_pictures_is_bounded_for_each_tenant(server: Running) -> None:
    reader, body = reader_of(server), chat(part(FILE), TEXT)
    tenant = {"x-headrace-tenant": "many"}
    assert (await post(server, CHAT, body, **tenant))[0] == 200
    reader.take("many", pictures.MAX_HELD // 2)
    status, headers, answer = await post(server, CHAT, body, **tenant)
    assert (status, headers["retry-after"]) == (429, "1")
    assert "pictures" in answer["error"]["message"]
    assert (await post(server, CHAT, body, **{"x-headrace-tenant": "other"}))[0] == 200
    reader.give("many", pictures.MAX_HELD // 2)
    assert (await post(server, CHAT, body, **tenant))[0] == 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, pictures.MAX_HELD)), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_tenant_takes_half_of_the_rest_at_most(reader: pictures.PictureReader, wishes: list[tuple[str, int]]) -> None:
    held = Counter[str]()
    for tenant, size in wishes:
        others = held.total() - held[tenant]
        fits = held[tenant] + size <= (pictures.MAX_HELD - others) // 2
        with nullcontext() if fits else pytest.raises(CapacityError):
            reader.take(tenant, size)
        held[tenant] += size * fits
        assert reader.held == held.total() <= pictures.MAX_HELD
    for tenant, size in held.items():
        reader.give(tenant, size)
    assert reader.held == 0


async def test_a_picture_takes_the_memory_of_its_tiles_once_it_is_cut(
    reader: pictures.PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()
    wide = [PicturePart("image_url", url=url(encoded(picture(100, 10))), detail=None, param="p")] * 2

    async def inline(_: Any, __: int, function: Callable[..., Any], *given: Any) -> Any:
        read.append(reader.held)
        return function(*given)

    monkeypatch.setattr(offload, "decode_file", inline)
    request = await reader.read(wide)
    tiles = [len(one.pixels) for one in request.tiles]
    most = reader._tower.settings.tiles.most_tiles
    assert tiles[0] < most
    assert read == [2 * most * reader.tile_bytes, (most + tiles[0]) * reader.tile_bytes]
    assert reader.held == sum(tiles) * reader.tile_bytes
    request.release()
    assert reader.held == 0


async def test_a_client_that_leaves_gives_its_memory_back(server: Running) -> None:
    stream = await server.client.chat.completions.create(
        model=MODEL, messages=chat(part(FILE), TEXT)["messages"], max_tokens=800, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert held(server) > 0
    await stream.close()
    await until(lambda: held(server) == 0)


async def test_a_client_that_leaves_while_its_picture_is_computed_gives_its_memory_back(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, gate, begun = reader_of(server), threading.Event(), threading.Event()
    rows = reader._tower.rows

    def slow(tile: bytes) -> torch.Tensor:
        begun.set()
        assert gate.wait(timeout=300)
        return rows(tile)

    monkeypatch.setattr(reader._tower, "rows", slow)
    leaving = asyncio.create_task(post(server, CHAT, chat(part(FILE), TEXT)))
    staying = asyncio.create_task(post(server, CHAT, chat(part(FILE), TEXT, cache_salt="other")))
    await until(begun.is_set)
    await until(lambda: held(server) == 2 * 7 * reader.tile_bytes)
    assert (await post(server, CHAT, chat(TEXT)))[0] == 200  # a text waits for no picture
    leaving.cancel()
    await until(lambda: held(server) == 7 * reader.tile_bytes)
    gate.set()
    assert (await staying)[0] == 200


async def test_a_large_picture_is_decoded_beside_a_small_one(server: Running) -> None:
    large = encoded(Image.new("RGB", (6000, 3900)))
    answers = await asyncio.gather(*[post(server, CHAT, chat(part(file), TEXT)) for file in (large, FILE)])
    assert [status for status, _, _ in answers] == [200, 200]


async def test_a_model_of_text_refuses_pictures_by_the_part(seeing: SeeingModel, tmp_path: Path) -> None:
    model = write_seeing_model(tmp_path)
    (tmp_path / "processor_config.json").unlink()
    async with serving_model(loaded(model)) as running:
        status, _, answer = await post(running, CHAT, chat(TEXT, part(FILE)))
        assert (status, answer["error"]["code"]) == (400, "unsupported_parameter")
        assert answer["error"]["param"] == "messages[0].content[1].image_url"
        assert "has no preprocessor_config.json" in answer["error"]["message"]
        assert (await post(running, CHAT, chat(TEXT)))[0] == 200
