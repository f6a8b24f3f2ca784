"""Whole folders: what their files declare holds, and what is wrong in them is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from runtimes.llm.api.requests import ChatBody
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.service import load
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer import UnsupportedTokenizer
from runtimes.llm.weights.generation_config import InvalidModelFile, SamplingDefaults, sampling_defaults
from runtimes.wheels import ModelUnavailable
from tests.runtimes.llm.reference import save_safetensors, tiny_llama
from tests.runtimes.llm.server_fixtures import options_of
from tests.support.tokenizer_folders import write_tokenizer

ROWS = 538
HERMES = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<tool_call>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokenizer(save_safetensors(tiny_llama(vocab_size=ROWS, eos_token_id=2), tmp_path), "prepend")


def change(folder: Path, name: str, **fields: Any) -> None:
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))


def loaded(folder: Path, **sampling: float) -> LoadedModel:
    return load(options_of(folder, sampling=sampling))


@pytest.mark.parametrize(
    ("name", "fields", "ends"),
    [
        ("generation_config.json", {"eos_token_id": [2, 32000]}, {2, 4}),
        ("generation_config.json", {"eos_token_id": None}, {2, 4}),
        ("generation_config.json", {"eos_token_id": [3, None]}, {2, 3, 4}),
        ("config.json", {"eos_token_id": "2"}, {2, 4}),
        ("config.json", {"eos_token_id": [2, 99999]}, {2, 4}),
        ("tokenizer_config.json", {"eos_token": "<|end_of_turn_without_row|>"}, {4, 2}),
    ],
)
def test_end_tokens_without_a_row_end_no_answer(folder: Path, name: str, fields: Any, ends: set[int]) -> None:
    change(folder, name, **fields)
    model = loaded(folder)
    usable = model.tokenizer.eos_token_ids | model.engine._engine.eos_token_ids
    assert usable == ends
    assert model.grammars is not None
    model.grammars.close()


def test_files_beside_the_model_do_not_stop_it(folder: Path) -> None:
    fingerprint = loaded(folder).fingerprint
    (folder / "README.md").symlink_to(folder / "pruned")
    assert loaded(folder).fingerprint == fingerprint


def test_a_template_that_is_not_valid_disables_chats_only(folder: Path) -> None:
    change(folder, "tokenizer_config.json", chat_template="{% for %}")
    model = loaded(folder)
    assert isinstance(model.chat_template, str)
    with pytest.raises(Exception, match=r"cannot chat: the model's chat template is not valid Jinja.*use another"):
        model.template("use another", tools=False)


@pytest.mark.parametrize(("source", "used"), [(HERMES, True), ("{{ tools }} Action: ```json", False), ("{% x", False)])
def test_a_template_for_tools_is_used_if_its_format_is_supported(folder: Path, source: str, used: bool) -> None:
    named = [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": source}]
    change(folder, "tokenizer_config.json", chat_template=named)
    model = loaded(folder)
    chosen = model.template("", tools=True)
    assert (chosen.source == source) == used
    assert isinstance(model.chat_template, ChatTemplate)
    assert model.template("", tools=False) is model.chat_template


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_sampling_of_a_request_is_the_models_and_its_own_fields_replace_it(folder: Path) -> None:
    change(folder, "generation_config.json", temperature=0.6, top_k=20, top_p=0.95, do_sample=True)
    assert loaded(folder).sampling == SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95)
    defaults = loaded(folder, top_k=-1, temperature=1).sampling
    assert defaults == SamplingDefaults(top_p=0.95)
    with pytest.raises(InvalidModelFile, match="--sampling has top_p 2"):
        loaded(folder, top_p=2)
    body = ChatBody(messages=[], top_p=1.0, min_p=0.0)
    params = body.params(
        5, choice=0, eos_token_ids=frozenset(), logprobs=None, prompt_logprobs=None, bad_words=None,
        defaults=SamplingDefaults(temperature=0.5, top_p=0.3, top_k=7, min_p=0.2, repetition_penalty=1.5),
    )  # fmt: skip
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 1.0, 7, 0.0)
    assert params.repetition_penalty == 1.5


def test_an_impossible_recommendation_is_left_out(folder: Path) -> None:
    change(folder, "generation_config.json", temperature="hot", top_k=3.5, top_p=0, min_p=0.1)
    assert sampling_defaults(folder) == SamplingDefaults(min_p=0.1)


def test_the_sampling_of_a_gguf_file(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_float32("general.sampling.temp", 0.25)
    writer.add_int32("general.sampling.top_k", 9)
    writer.add_float32("general.sampling.penalty_repeat", 1.5)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.close):
        write()
    assert sampling_defaults(tmp_path / "m.gguf") == SamplingDefaults(temperature=0.25, top_k=9, repetition_penalty=1.5)


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────


def _only(*names: str) -> Callable[[Path], None]:
    def keep(folder: Path) -> None:
        for file in folder.iterdir():
            if file.name not in names:
                file.unlink()

    return keep


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def _without_tokenizer(*more: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        for name in more:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")

    return remove


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_tokenizer("tokenizer.model"), "sentencepiece tiktoken.*save_pretrained"),
        (_without_tokenizer("m.gguf"), r"name the GGUF file, .*m\.gguf"),
        (_without_tokenizer("snapshots/abc/x"), "name the folder of a revision, .*abc"),
        (_without_tokenizer("0_Transformer/config.json"), "name the folder that has it, .*0_Transformer"),
        (_only(), "has no config.json: it is no folder of a model"),
        (_only("generation_config.json"), "has no config.json: it is no folder of a model"),
        (
            _write("tokenizer.json", b"version https://git-lfs.github.com/spec/v1"),
            "cannot be read: .*git lfs pull",
        ),
        (_write("tokenizer.json", b'{"decoder": null}'), r"tokenizer\.json cannot be read"),
        (_write("tokenizer_config.json", b"{x"), "tokenizer_config.json is not JSON"),
        (_write("generation_config.json", b"[]"), "generation_config.json is not "),
        (_write("config.json", b'{"model_type": "mamba9"}'), "mamba9"),
    ],
)
def test_messages_name_the_file_and_the_way_out(folder: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(folder)
    with pytest.raises((ModelUnavailable, ValueError), match=message):
        loaded(folder)


def test_an_unsupported_architecture_is_named_before_a_missing_tokenizer(folder: Path) -> None:
    change(folder, "config.json", model_type="mpt")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModel, match="mpt"):
        loaded(folder)


def test_files_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert loaded(folder).tokenizer.named["eos_token"] == "</s>"


def test_a_tokenizer_without_a_decoder_is_refused_by_that(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | {"decoder": None}))
    with pytest.raises(UnsupportedTokenizer, match="has no decoder"):
        loaded(folder)
