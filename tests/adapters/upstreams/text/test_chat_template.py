"""Prompts equal to those of transformers, from templates that come with Headrace, with a model, or in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from adapters.errors import CallerError
from adapters.requests import ChatRequest
from adapters.upstreams.text.chat_template import BUNDLED, PromptTemplate, TemplateError, load
from adapters.wire.openai import chat as openai

pytestmark = pytest.mark.runtimes

NAMES = sorted(file.stem for file in BUNDLED.glob("*.jinja"))
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
CONVENTIONS = (
    "{%- for m in messages -%}{%- if loop.index > 2 -%}{%- break -%}{%- endif -%}"
    '{{ {"é": m.content} | tojson }}{{ [1, {"b": m.role, "a": none}] | tojson(indent=2, sort_keys=true) }}'
    "{%- generation -%}{{ m.content | trim }}{{ eos_token }}{%- endgeneration -%}{%- endfor -%}"
    "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + loop.length -%}{%- endfor -%}"
    "{{ ns.n }}{{ bos_token }}{{ strftime_now('%%') }}{{ messages[1:] | length }}"
    "{%- if add_generation_prompt -%}go{%- endif -%}{%- if tools is defined and tools -%}tools{%- endif -%}"
)


def chat(messages: Any = HI, **fields: Any) -> ChatRequest:
    return openai.decode_chat(json.dumps({"model": "m", "messages": messages, **fields}).encode())


def theirs(source: str, messages: list[dict[str, str]], *, eos: str, answer: bool = True) -> str:
    [prompt], _ = render_jinja_template(
        [messages], chat_template=source, add_generation_prompt=answer, bos_token="<s>", eos_token=eos
    )
    return str(prompt)


def source(name: str) -> str:
    return (BUNDLED / f"{name}.jinja").read_text()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
turns = st.lists(st.fixed_dictionaries({"content": texts}), min_size=1, max_size=5)


@pytest.mark.parametrize("name", [*NAMES, "conventions"])
@given(turns=turns, system=st.none() | texts, answer=st.booleans())
@settings(max_examples=30, deadline=None)
def test_prompts_are_those_of_transformers(
    name: str, turns: list[dict[str, str]], system: str | None, answer: bool
) -> None:
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": role, **turn} for role, turn in zip(roles, turns, strict=False)]
    if system is not None:
        messages = [{"role": "system", "content": system}, *messages]
    written = CONVENTIONS if name == "conventions" else source(name)
    ours = PromptTemplate(written, bos="<s>", eos="</s>").prompt(chat(messages, add_generation_prompt=answer))
    assert ours == theirs(written, messages, eos="</s>", answer=answer)


EXPECTED = {
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
    "<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n"
    "<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n",
    "llama2": "[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s>[INST] C [/INST]",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA"
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_id|>"
    "\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "[INST] S\n\nA [/INST] B</s>[INST] C [/INST]",
    "zephyr": "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n<|assistant|>\n",
}


def test_the_templates_that_come_with_headrace() -> None:
    """A template writes the beginning-of-text token only if configured: servers put it before every prompt."""
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "C"},
    ]
    assert {name: load(name).prompt(chat(messages)) for name in NAMES} == EXPECTED
    assert load("mistral", "<s>").prompt(chat(messages)) == "<s>" + EXPECTED["mistral"]


@pytest.mark.parametrize("name", ["gemma", "llama2", "mistral"])
def test_a_template_may_refuse(name: str) -> None:
    with pytest.raises(CallerError, match="take turns") as caught:
        load(name).prompt(chat([*HI, *HI]))
    assert caught.value.param == "messages"


def test_contents_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in load("chatml").prompt(chat([{"role": "user", "content": parts}]))
    knows = "{% for p in messages[0].content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}"
    assert PromptTemplate(knows).prompt(chat([{"role": "user", "content": parts}])) == "[a][b]"


def test_a_developer_is_a_system() -> None:
    assert load("chatml").prompt(chat([{"role": "developer", "content": "S"}, *HI])).startswith("<|im_start|>system\nS")


def test_an_answer_that_has_begun_is_gone_on_with() -> None:
    begun = [*HI, {"role": "assistant", "content": "he <|im_end|>"}]
    fields = {"add_generation_prompt": False, "continue_final_message": True}
    assert load("chatml").prompt(chat(begun, **fields)).endswith("<|im_start|>assistant\nhe <|im_end|>")
    with pytest.raises(CallerError, match="continue_final_message"):
        load("chatml").prompt(chat(HI, continue_final_message=True))


def test_further_variables_of_a_template() -> None:
    template = PromptTemplate("{{ thinking }}{{ messages[0].content }}")
    assert template.prompt(chat(chat_template_kwargs={"thinking": "on"})) == "onhi"
    with pytest.raises(CallerError, match="may not hold `messages`"):
        template.prompt(chat(chat_template_kwargs={"messages": []}))
    with pytest.raises(CallerError, match="chat_template_kwargs"):
        template.prompt(chat(chat_template_kwargs=1))


REFUSED: dict[str, Any] = {
    "an image": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    "a call of a tool": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
    "a tool's answer": [{"role": "tool", "content": "x", "tool_call_id": "1"}],
    "no role": [{"content": "x"}],
    "no message": ["x"],
    "no text": [{"role": "user", "content": 1}],
}


@pytest.mark.parametrize("messages", REFUSED.values(), ids=REFUSED.keys())
def test_messages_that_are_none_for_a_template(messages: Any) -> None:
    with pytest.raises(CallerError) as caught:
        load("chatml").prompt(chat(messages))
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "written",
    [
        "{{ messages[0].content.missing.deeper }}",
        "{{ messages + 1 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% set ns = namespace(_a=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(99) }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ [1] * 999999999 }}",
        "{{ 999999999 * 'ab' }}",
        "{{ 10 ** 99999 }}",
        "{% for i in range(90000) %}{{ 'a' * 10000 }}{% endfor %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_templates_run_in_a_sandbox_and_not_for_ever(written: str) -> None:
    with pytest.raises(CallerError, match="chat template refuses"):
        PromptTemplate(written).prompt(chat())


def written(folder: Path, config: str) -> str:
    (folder / "tokenizer_config.json").write_text(config)
    return str(folder)


def model(folder: Path, config: dict[str, Any], template: str | None = None) -> str:
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return written(folder, json.dumps(config))


def test_a_models_own(tmp_path: Path) -> None:
    template_text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template_text}
    assert load(model(tmp_path, config)).prompt(chat()) == "hi</s>"


def test_a_models_own_in_a_file(tmp_path: Path) -> None:
    config = {"chat_template": [{"name": "default", "template": "x"}, {"name": "rag", "template": "y"}]}
    folder = model(tmp_path, config)
    assert load(folder, "several").prompt(chat()) == "x"
    model(tmp_path, config, "{{ messages[0].role }}")
    assert load(folder, "a file").prompt(chat()) == "user"
    assert load(f"file:{tmp_path / 'chat_template.jinja'}").prompt(chat()) == "user"


def test_a_models_own_beside_its_processor(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0].role }}"}))
    assert load(model(tmp_path, {"eos_token": "</s>"})).prompt(chat()) == "user"
    assert load(model(tmp_path, {"chat_template": "x"}), "again").prompt(chat()) == "x"


@pytest.mark.parametrize("content", ["{}", "[", '{"chat_template": 5}'])
def test_a_broken_file_of_a_processor_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "chat_template.json").write_text(content)
    with pytest.raises(TemplateError, match=r"its chat_template\.json cannot be read"):
        load(str(tmp_path))


UNUSABLE: dict[str, tuple[Callable[[Path], str], str]] = {
    "nobody's name": (lambda folder: "chatml2", "templates by name are chatml, gemma"),
    "a path out of the folder": (lambda folder: "../templates/chatml", "no such folder"),
    "no file": (lambda folder: f"file:{folder}/none", "cannot be read: No such file"),
    "a folder as a file": (lambda folder: f"file:{folder}", "cannot be read"),
    "no template": (lambda folder: model(folder, {}), "has no chat template"),
    "no JSON": (
        lambda folder: str((folder / "tokenizer_config.json").write_text("{") and folder),
        "json cannot be read",
    ),
    "no object": (
        lambda folder: str((folder / "tokenizer_config.json").write_text("[]") and folder),
        "json cannot be read",
    ),
    "no Jinja": (lambda folder: model(folder, {}, "{% for %}"), "not valid Jinja"),
}


@pytest.mark.parametrize(("name", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_invalid_template_is_refused(tmp_path: Path, name: Callable[[Path], str], message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        load(name(tmp_path))
