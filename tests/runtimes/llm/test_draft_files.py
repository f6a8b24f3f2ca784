"""A draft model from its files: it answers as without, or is refused with the reason."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.engine.async_engine import EngineConfig
from runtimes.llm.engine.speculation import Speculation
from runtimes.llm.service import load
from runtimes.llm.text.vocabularies import MOST_MISSING, difference
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.reference import save_safetensors, tiny_llama
from tests.runtimes.llm.server_fixtures import HI, MODEL, options_of, serving_model
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.tokenizer_folders import write_tokenizer

ROWS = 538


def folder_of(folder: Path, *, layout: str = "prepend", model: Any = None, **changes: Any) -> Path:
    folder.mkdir()
    made = model or tiny_llama(**{"vocab_size": ROWS, "eos_token_id": 2, "bos_token_id": 1, **changes})
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return write_tokenizer(save_safetensors(made, folder), layout, chat_template=template)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("models") / "large", num_hidden_layers=3)


def loaded(large: Path, draft: Path | str | None, **bounds: Any) -> LoadedModel:
    speculation = None if draft is None else Speculation("draft_model", model=str(draft))
    engine = partial(
        EngineConfig, dtype="float32", executor="torch", kv_cache_bytes=1 << 20, max_num_seqs=2, threads=1,
        speculation=speculation, **bounds,
    )  # fmt: skip
    return load(options_of(large, engine_config=engine))


async def test_a_server_with_a_draft_answers_as_without(large: Path, tmp_path: Path) -> None:
    draft = folder_of(tmp_path / "draft", num_hidden_layers=3, vocab_size=ROWS + 8)
    answers, stats = [], []
    for one in (None, draft, large):
        async with serving_model(loaded(large, one)) as running:
            answer = await running.client.chat.completions.create(
                model=MODEL, messages=HI, max_tokens=120, temperature=0, extra_body={"ignore_eos": True}
            )
            answers.append(answer.choices[0].message.content)
            stats.append(running.engine.stats())
    assert answers[1:] == answers[:1] * 2
    assert [one.generated_tokens for one in stats] == [120] * 3
    assert stats[2].accepted_tokens > 0


def test_the_drafts_pages_are_a_part_of_the_cache(large: Path) -> None:
    alone, with_draft = (loaded(large, draft).engine.stats().kv_blocks_total for draft in (None, large))
    assert with_draft == alone // 2


def cut(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def declared(folder: Path, **fields: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder_of(folder, layout="byte level"), r"another vocabulary \(token \d+ is .*same family"),
        (lambda folder: folder.parent / "absent", "no file or folder"),
        (lambda folder: cut(folder_of(folder)), "cannot be loaded: model.safetensors is damaged"),
        (lambda folder: declared(folder_of(folder), model_type="quill"), "quill"),
        (
            lambda folder: folder_of(folder, model=tiny("falcon_h1", vocab_size=ROWS)),
            "recurrent layers, whose state cannot go back",
        ),
        (
            lambda folder: declared(folder_of(folder), architectures=["LlamaForSequenceClassification"]),
            "no model that answers",
        ),
    ],
)
def test_another_draft_is_refused(make: Callable[[Path], Path], reason: str, large: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"speculation: the draft .*{reason}"):
        loaded(large, make(tmp_path / "draft"))


def test_vocabularies_differ_by_the_spelling_of_an_id() -> None:
    marks = [f"<|{number}|>" for number in range(MOST_MISSING + 1)]
    plain = byte_tokenizer()
    assert difference(plain, byte_tokenizer()) is None
    assert difference(plain, byte_tokenizer(marks=marks[:-1], control=True)) is None
    assert difference(byte_tokenizer(marks=marks[:-1]), plain) is None
    assert difference(plain, byte_tokenizer(marks=marks)) == "its vocabulary has 387 tokens, and this one 258"
    named = difference(byte_tokenizer(words=["here"]), byte_tokenizer(words=["there"]))
    assert named == "token 258 is 'there' there and 'here' here"
