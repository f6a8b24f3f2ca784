"""An engine whose prompts have pictures: transformers' numbers, in any chunks, from the cache and after preemption."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import ExecutorName, TorchExecutor
from runtimes.llm.picture_rows import PictureRows, placed_rows
from runtimes.llm.sequence import Chunk
from runtimes.llm.sequence import Sequence as Answer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.vision.prompts import PicturePrompts
from runtimes.llm.vision.settings import vision_settings
from runtimes.llm.vision.tiles import tiled
from runtimes.llm.vision.tower import VisionTower, load_tower
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import TIE
from tests.support.llm_engines import run
from tests.support.seeing_models import SeeingModel, encoded, picture, write_seeing_model

BLOCK = 16
TEXT = "<|im_start|>User:<image>Which of <image> is it?<end_of_utterance>\nAssistant:"
SIZES = [(100, 60), (28, 80)]


class Prompt(NamedTuple):
    """A prompt for an engine, and for transformers."""

    token_ids: list[int]
    rows: PictureRows
    inputs: Any


class Seer:
    """A model that sees, and prompts for it."""

    def __init__(self, folder: Path, family: str = "idefics3", **how: Any) -> None:
        self.model: SeeingModel = write_seeing_model(folder, family, **how)
        settings = vision_settings(folder)
        assert settings is not None
        self.tower: VisionTower = load_tower(folder, settings, "float32", "cpu")
        self.tokenizer = load_tokenizer(folder)
        self._prompts = PicturePrompts(settings, self.tokenizer)

    def prompt(self, text: str = TEXT, sizes: Sequence[tuple[int, int]] = SIZES, seed: int = 0) -> Prompt:
        images = [picture(*size, seed + index) for index, size in enumerate(sizes)]
        tiles = [tiled(encoded(image), self.tower.settings.tiles, "image") for image in images]
        ids, places = self._prompts.expanded(self.tokenizer.encode(text, allow_special=True), tiles)
        digests = [digest for one in tiles for digest in one.digests]
        rows = [self.tower.rows(tile) for one in tiles for tile in one.pixels]
        inputs = self.model.processor(images=images, text=[text], return_tensors="pt")
        return Prompt(ids, PictureRows(self.tower.settings.rows, tuple(places), tuple(digests), tuple(rows)), inputs)

    def engine(self, **how: Any) -> Engine:
        bounds = {"max_num_batched_tokens": 30, "max_num_seqs": 8, "kv_cache_bytes": 1 << 22} | how
        return Engine.load(EngineConfig(model=self.model.folder, dtype="float32", device="cpu", **bounds))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def assert_greedy(self, prompt: Prompt, answer: Sequence[int]) -> None:
        """Each token is the likeliest of transformers after all before it, or as likely."""
        inputs = dict(prompt.inputs)
        inputs["input_ids"] = torch.tensor([[*prompt.token_ids, *answer[:-1]]])
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        logits = self.model.model(**inputs).logits[0, len(prompt.token_ids) - 1 :]
        behind = logits.amax(dim=-1) - logits[torch.arange(len(answer)), torch.tensor(list(answer))]
        assert behind.max() < TIE


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Seer:
    return Seer(tmp_path_factory.mktemp("seer"))


def answered(engine: Engine, prompts: Sequence[Prompt | list[int]], tokens: int = 20) -> list[list[int]]:
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    ids = [
        engine.add(one, params) if isinstance(one, list) else engine.add(one.token_ids, params, pictures=one.rows)
        for one in prompts
    ]
    outputs = run(engine)
    return [[output.token_id for output in outputs[identity]] for identity in ids]


@pytest.mark.parametrize("family", ["idefics3", "smolvlm"])
@pytest.mark.parametrize("splits", [True, False])
def test_log_probabilities_are_those_of_transformers(tmp_path: Path, family: str, splits: bool) -> None:
    seer = Seer(tmp_path, family, splits=splits)
    prompt = seer.prompt()
    with torch.inference_mode():
        expected = seer.model.model(**prompt.inputs).logits[0].log_softmax(-1)
    model = load_model(tmp_path, dtype="float32", device="cpu")
    first, last = prompt.rows.places[0], len(prompt.token_ids)
    for cuts in ([], [first + 1, first + 2, first + 9], [1, 16, 20, 33]):
        executor = TorchExecutor(model, 64, BLOCK, context_length=1024)
        parts = []
        for start, end in zip([0, *cuts], [*cuts, last], strict=True):
            chunk = Chunk(
                0, start, tuple(prompt.token_ids[start:end]), tuple(range(64)), True, SamplingParams(max_tokens=1), 0,
                pictures=prompt.rows,
            )  # fmt: skip
            parts.append(executor.logits([chunk], range(end - start)))
        torch.testing.assert_close(torch.cat(parts).log_softmax(-1), expected, atol=2e-4, rtol=0)


def test_answers_are_those_of_transformers_beside_texts(seer: Seer) -> None:
    engine = seer.engine()
    prompts = [seer.prompt(), seer.prompt("<|im_start|>User:<image>hm", [(60, 60)], 5)]
    text = seer.tokenizer.encode("no picture at all")
    for prompt, answer in zip(prompts, answered(engine, [prompts[0], text, prompts[1], text])[::2], strict=True):
        seer.assert_greedy(prompt, answer)


def test_a_picture_is_cached_by_its_content(seer: Seer) -> None:
    engine, prompt, other = seer.engine(), seer.prompt(), seer.prompt(seed=7)
    assert other.token_ids == prompt.token_ids
    first = answered(engine, [prompt])
    assert engine.stats().cached_prompt_tokens == 0
    assert answered(engine, [prompt]) == first
    again = engine.stats().cached_prompt_tokens
    assert again == (len(prompt.token_ids) - 1) // BLOCK * BLOCK
    [answer] = answered(engine, [other])
    assert engine.stats().cached_prompt_tokens - again <= prompt.rows.places[0]
    seer.assert_greedy(other, answer)
    assert [answer] != first


def test_only_the_pictures_before_a_change_are_shared(seer: Seer) -> None:
    engine = seer.engine()
    one, two = seer.prompt(seed=3), seer.prompt(seed=3)
    changed = seer.prompt(seed=9).rows
    last = len(two.rows.digests) - 1
    rows = PictureRows(
        two.rows.length, two.rows.places, (*two.rows.digests[:last], changed.digests[last]),
        (*two.rows.rows[:last], changed.rows[last]),
    )  # fmt: skip
    answered(engine, [one])
    answered(engine, [two._replace(rows=rows)])
    assert engine.stats().cached_prompt_tokens == rows.places[last] // BLOCK * BLOCK


def test_equal_pictures_of_two_requests_at_once_are_computed_once(seer: Seer) -> None:
    engine, prompt = seer.engine(), seer.prompt(seed=11)
    first, second = answered(engine, [prompt, prompt])
    assert first == second
    assert engine.stats().cached_prompt_tokens > prompt.rows.places[0]


def test_answers_survive_preemption(seer: Seer) -> None:
    prompts = [seer.prompt(seed=20 + index) for index in range(3)]
    roomy = answered(seer.engine(prefix_cache=False), prompts, 40)
    token = 2 * 2 * 2 * 16 * 4
    pages = -(-3 * len(prompts[0].token_ids) // BLOCK) + 2
    tight = seer.engine(prefix_cache=False, kv_cache_bytes=pages * BLOCK * token, max_num_batched_tokens=200)
    assert answered(tight, prompts, 40) == roomy
    assert tight.stats().preemptions > 0
    for prompt, answer in zip(prompts, roomy, strict=True):
        seer.assert_greedy(prompt, answer)


def test_an_answer_is_continued(seer: Seer) -> None:
    prompt, engine = seer.prompt(seed=30), seer.engine()
    [whole] = answered(engine, [prompt])
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    identity = engine.add(prompt.token_ids + whole[:7], params, continued=7, pictures=prompt.rows)
    assert [output.token_id for output in run(engine)[identity]] == whole[7:]


def test_the_native_step_answers_as_torch_does(tmp_path: Path) -> None:
    seer = Seer(tmp_path, initializer_range=0.05)
    prompt = seer.prompt()
    logits = []
    executors: tuple[ExecutorName, ...] = ("native", "torch")
    for name in executors:
        engine = Engine.load(
            EngineConfig(
                model=tmp_path, dtype="bfloat16", device="cpu", executor=name, kv_cache_bytes=1 << 22,
                max_num_batched_tokens=23, max_num_seqs=4, threads=2,
            )
        )  # fmt: skip
        params = SamplingParams(max_tokens=1, temperature=0, logprobs=20)
        identity = engine.add(prompt.token_ids, params, pictures=prompt.rows)
        [output] = run(engine)[identity]
        assert output.logprobs is not None
        logits.append(dict(output.logprobs.top))
    native, plain = logits
    shared = native.keys() & plain.keys()
    assert len(shared) > 15
    assert max(abs(native[token] - plain[token]) for token in shared) < 0.05


@given(
    places=st.lists(st.integers(0, 12), min_size=1, max_size=5), length=st.integers(1, 5),
    cuts=st.lists(st.integers(1, 60), max_size=6),
)  # fmt: skip
def test_rows_are_in_their_places_in_any_chunks(places: list[int], length: int, cuts: list[int]) -> None:
    starts = [sum(places[: index + 1]) + index * length for index in range(len(places))]
    marks = [torch.full((length, 1), index + 1.0) + torch.arange(length)[:, None] / 10 for index in range(len(places))]
    rows = PictureRows(length, tuple(starts), tuple(bytes([index]) for index in range(len(places))), tuple(marks))
    size = rows.end + 5
    whole = torch.zeros(size, 1)
    for start, one in zip(starts, marks, strict=True):
        whole[start : start + length] = one
    sequence = Answer(0, [1] * size, SamplingParams(max_tokens=1), pictures=rows)
    ends = sorted({min(cut, size) for cut in cuts} | {size})
    chunks = []
    for end in ends:
        chunks.append(sequence.chunk(end - sequence.num_computed))
        sequence.num_computed = end
    placed = torch.zeros(size, 1)
    for at, part in placed_rows(chunks):
        placed[at : at + len(part)] = part
    assert torch.equal(placed, whole)
    for start, end in zip([0, *ends], ends, strict=False):
        inside = [index for index, place in enumerate(starts) if place < end and place + length > start]
        assert rows.digest(start, end) == bytes(inside)
