"""Templates by their features, against transformers' own `apply_chat_template`."""

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from runtimes.llm.api.messages import Message, check_messages
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.template_features import TemplateFeatures
from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from tests.support.tokenizer_folders import LAYOUTS, write_tokenizer

TOOL = {"type": "function", "function": {"name": "now", "description": "é", "parameters": {"type": "object"}}}
CONTENTS = {
    "text": "{{ m.content }}",
    "trimmed": "{{ m.content | trim }}",
    "parts": "{% for c in m.content | selectattr('type', 'equalto', 'text') %}{{ c.text }}{% endfor %}",
    # As SmolVLM's, which asks what the first part is.
    "seeing": (
        "{{ ':' if m.content[0]['type'] == 'image' else ': ' }}{% for c in m.content %}"
        "{% if c['type'] == 'text' %}{{ c['text'] }}{% elif c['type'] == 'image' %}<image>{% endif %}{% endfor %}"
    ),
    "both": (
        "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
        "{% if c.type == 'text' %}{{ c['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
    ),
}
SYSTEMS = {
    "any": "",
    "none": "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
}
THOUGHTS = {
    "none": "",
    "field": "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}",
}
TOOLS = {
    "none": "",
    "hermes": "{% if tools %}{% for t in tools %}<tool_call>{{ t | tojson }}{% endfor %}\n{% endif %}",
}


def source_of(content: str, system: str, thoughts: str, tools: str) -> str:
    calls = (
        "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
        if tools == "hermes"
        else ""
    )
    return (
        f"{{{{ bos_token }}}}{TOOLS[tools]}{{% for m in messages %}}{SYSTEMS[system]}"
        f"{{{{ '<|im_start|>' + m.role }}}}\n{THOUGHTS[thoughts]}{CONTENTS[content]}{calls}<|im_end|>\n{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


FEATURES = list(itertools.product(CONTENTS, SYSTEMS, THOUGHTS, TOOLS))
texts = st.lists(st.sampled_from(["Hello", " ", "naïve", "\n", "日本", "{x}", "'", "it "]), min_size=1, max_size=4).map(
    "".join
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Any]]:
    """Each layout's tokenizer, and transformers' reading of the same folder."""
    folders = {name: write_tokenizer(tmp_path_factory.mktemp("tokenizer"), name) for name in LAYOUTS}
    return {
        name: (load_tokenizer(folder), PreTrainedTokenizerFast.from_pretrained(folder))
        for name, folder in folders.items()
    }


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    content = st.one_of(texts, st.lists(texts, min_size=1, max_size=3).map(as_parts))
    turns: list[dict[str, Any]] = [{"role": "system", "content": draw(content)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 2))):
        turns.append({"role": "user", "content": draw(content)})
        answer = {"role": "assistant", "content": draw(content)}
        turns.append(answer | ({"reasoning_content": draw(texts)} if draw(st.booleans()) else {}))
    return turns[: -draw(st.integers(0, 1)) or None]


def as_parts(texts: list[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def for_templates(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as a request's decoding gives them."""
    decoded = msgspec.convert(messages, list[Message])
    check_messages(decoded)
    return [message.for_template() for message in decoded]


def adapted(messages: list[dict[str, Any]], content: str, system: str) -> list[dict[str, Any]]:
    """The messages in the shape that the template's authors expect."""
    result = [dict(message) for message in messages]
    if system == "none" and result[0]["role"] == "system":
        first = result.pop(0)
        texts = [one if isinstance(one, str) else "\n".join(part["text"] for part in one)
                 for one in (first["content"], result[0]["content"])]  # fmt: skip
        result[0] = result[0] | {"content": "\n\n".join(texts)}
    for message in result:
        given = message["content"]
        if content in ("parts", "seeing") and isinstance(given, str):
            message["content"] = as_parts([given])
        elif content in ("text", "trimmed") and not isinstance(given, str):
            message["content"] = "\n".join(part["text"] for part in given)
    return result


@settings(max_examples=120, deadline=None)
@given(
    features=st.sampled_from(FEATURES),
    layout=st.sampled_from(list(LAYOUTS)),
    messages=conversations(),
    tool=st.booleans(),
)
def test_prompts_are_those_of_transformers(
    loaded: dict[str, tuple[Tokenizer, Any]], features: Any, layout: str, messages: list[dict[str, Any]], tool: bool
) -> None:
    content, system, _, tools = features
    ours, theirs = loaded[layout]
    source = source_of(*features)
    given = [TOOL] if tool and tools == "hermes" else []
    expected = theirs.apply_chat_template(
        adapted(messages, content, system), tools=given or None, chat_template=source, add_generation_prompt=True
    )["input_ids"]
    assert ChatTemplate(source, ours).encode(for_templates(messages), tools=given) == expected


@pytest.mark.parametrize("features", FEATURES, ids=str)
def test_no_text_of_a_conversation_with_tools_is_lost(loaded: dict[str, tuple[Tokenizer, Any]], features: Any) -> None:
    """Whatever the template takes, all texts and the tools are in the prompt, and no message writes a control token."""
    tokenizer, _ = loaded["prepend"]
    call = {"id": "c12345678", "type": "function", "function": {"name": "now", "arguments": '{"a": "cut'}}
    conversation: list[dict[str, Any]] = [
        {"role": "developer", "content": as_parts(["Rule-one", "Rule-two"])},
        {"role": "user", "content": "Ask <|im_end|> this"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c12345678", "content": as_parts(["Noon<s>"])},
        {"role": "user", "content": as_parts(["And then <"])},
    ]
    ids = ChatTemplate(source_of(*features), tokenizer).encode(for_templates(conversation), tools=[TOOL])
    prompt = tokenizer.decode(ids, special=True)
    for text in ("Rule-one", "Rule-two", "Ask <|im_end|> this", '"name": "now"', "Noon<s>", "And then <"):
        assert text in prompt, text
    turns = 4 if features[1] == "none" else 5
    assert ids.count(tokenizer.special_tokens["<|im_end|>"]) == turns


COMPUTING = {
    "split": "{{ m.content.split('</think>')[-1].lstrip('\\n') }}",
    "in": "{% if '</think>' in m.content %}thought{% else %}none{% endif %}<|im_end|>{{ m.content }}",
    "equal": "{{ 'same' if m.content == '<|im_end|>' else m.content }}",
    "length": "{{ m.content | length }}{{ '<|im_end|>' }}{{ m.content }}",
    "starts": "{% set tag = '<|im_end|>' %}{{ m.content.startswith('<s>') }}{{ tag ~ m.content }}",
    "replace": "{{ m.content.replace('</s>', '') + '<|im_end|>' }}",
    "get": "{{ m.get('name', '<|im_end|>') }}{{ m.content | length }}{{ m.content }}",
    "bos": "{{ bos_token + m.content | trim + eos_token }}{{ {'user': '<|im_start|>'}[m.role] }}",
    "macro": "{% macro turn(c, end='<|im_end|>') %}{{ c }}{{ end }}{% endmacro %}{{ turn(m.content[1:]) }}",
    "composed": "{{ '<|' + m.role + '|>' }}{{ m.content }}{{ m.content | length }}",
}
SPELLED = ["<s>strike</s>", "a</think>\n\nb", "<|im_end|>", "ends with <", "<|im_", "user|>", "</s>x<|im_end|>"]


@pytest.mark.parametrize("layout", ["metaspace first", "byte level"])
@pytest.mark.parametrize("name", COMPUTING)
def test_a_template_computes_with_the_messages_themselves(tmp_path: Path, layout: str, name: str) -> None:
    write_tokenizer(tmp_path, layout, additional_special_tokens=["</think>", "<|user|>"])
    tokenizer, theirs = load_tokenizer(tmp_path), PreTrainedTokenizerFast.from_pretrained(tmp_path)
    source = f"{{% for m in messages %}}{COMPUTING[name]}{{% endfor %}}"
    template = ChatTemplate(source, tokenizer)
    for content in SPELLED:
        ids = template.encode([{"role": "user", "content": content}])
        turn = [{"role": "user", "content": content}]
        text = theirs.apply_chat_template(turn, chat_template=source, tokenize=False)
        assert tokenizer.decode(ids, special=True).lstrip() == text.lstrip()
        plain = template.encode([{"role": "user", "content": "x" * len(content)}])
        control = set(tokenizer.special_tokens.values())
        assert [id for id in ids if id in control] == [id for id in plain if id in control], content


def test_thoughts_may_be_parts(loaded: dict[str, tuple[Tokenizer, Any]]) -> None:
    tokenizer, _ = loaded["byte level"]
    source = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
        "{% if c.type == 'thinking' %}[THINK]{{ c.thinking }}[/THINK]{% else %}{{ c.text }}{% endif %}"
        "{% endfor %}{% endif %}|{% endfor %}"
    )
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    conversation: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": parts}]
    ids = ChatTemplate(source, tokenizer).encode(for_templates(conversation))
    assert tokenizer.decode(ids) == "x|[THINK]hm[/THINK]yes|"


def test_a_client_turn_that_a_template_skips_is_skipped() -> None:
    features = TemplateFeatures.of(lambda turns: "".join(str(m["content"]) for m in turns if m["role"] == "user"))
    turns = [{"role": "system", "content": "rule"}, {"role": "user", "content": "x"}]
    assert features.adapted(turns, own=False) == turns
    assert features.adapted(turns, own=True) == [{"role": "user", "content": "rule\n\nx"}]


# ── declared tokens and templates ─────────────────────────────────────────────────────────────────────


DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "added_tokens_decoder": (
        {
            "added_tokens_decoder": {
                "700": {"content": "<|b|>", "special": True},
                "699": {"content": "<|a|>", "special": False},
            }
        },
        {},
    ),
    "special_tokens_map": (
        {"eos_token": None},
        {"special_tokens_map.json": {"eos_token": "<|end|>", "pad_token": {"content": "<pad>"}}},
    ),
    "added_tokens": ({}, {"added_tokens.json": {"<|b|>": 701, "<|a|>": 700}}),
    "additional": ({"additional_special_tokens": ["<|x|>"], "pad_token": "</s>", "image_token": "<img>"}, {}),
}


@pytest.mark.parametrize("layout", ["metaspace first", "byte level"])
@pytest.mark.parametrize("name", DECLARED)
def test_declared_tokens_are_those_of_transformers(tmp_path: Path, layout: str, name: str) -> None:
    config, files = DECLARED[name]
    write_tokenizer(tmp_path, layout, **config)
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content))
    ours, theirs = load_tokenizer(tmp_path), PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for text in ("a<|a|> b<|b|>", "<|x|><img>x", "y<|end|><pad> </s>"):
        assert ours.encode(text, allow_special=True) == theirs(text, add_special_tokens=False).input_ids
    source = "{{ bos_token }}[{{ pad_token }}|{{ unk_token }}|{{ sep_token }}|{{ image_token }}]{{ eos_token }}"
    expected = theirs.apply_chat_template([{"role": "user", "content": "x"}], chat_template=source, tokenize=False)
    ids = ChatTemplate(source, ours).encode([{"role": "user", "content": "x"}])
    assert ours.decode(ids, special=True).lstrip() == expected
    assert ours.eos_token_ids >= {theirs.eos_token_id}


def test_a_token_that_the_template_writes_is_a_control_token(tmp_path: Path) -> None:
    """ChatML tunes add their marks as ordinary tokens."""
    template = "{% for m in messages %}[START]{{ m.content }}<|stop|>{% endfor %}"
    marks = {"650": {"content": "[START]", "special": False}, "651": {"content": "<|im_end|>", "special": False},
             "652": {"content": "<b>", "special": False}}  # fmt: skip
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, added_tokens_decoder=marks, chat_template=template))
    [start], [bold] = tokenizer.encode("[START]", allow_special=True), tokenizer.encode("<b>", allow_special=True)
    ids = ChatTemplate(template, tokenizer).encode([{"role": "user", "content": "[START]x<b>"}])
    assert (ids.count(start), ids.count(bold)) == (1, 1)
    assert set(tokenizer.encode("<|im_end|>", allow_special=True)) <= tokenizer.eos_token_ids


@pytest.mark.parametrize("text", ["\n\n", "    ", "[]", "[ ]", "< >", "m.", "<", "role"])
def test_an_ordinary_token_in_the_source_of_a_template_is_text(tmp_path: Path, text: str) -> None:
    template = "{% for m in messages %}\n\n    {{ [m.role, '[]', '[ ]', '< >'] | first }} {{ m.content }}{% endfor %}"
    added = {"650": {"content": text, "special": False}}
    write_tokenizer(tmp_path, "byte level", added_tokens_decoder=added, chat_template=template)
    ours = load_tokenizer(tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for content in (text, f"a{text}b", f"a {text} b{text}"):
        assert ours.encode(content) == theirs(content, add_special_tokens=False).input_ids
        prompt = theirs.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        ids = ChatTemplate(template, ours).encode([{"role": "user", "content": content}])
        assert ids == theirs(prompt, add_special_tokens=False).input_ids


def test_templates_by_name_and_in_their_folder(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t <tool_call>"}]
    tokenizer = load_tokenizer(write_tokenizer(tmp_path, chat_template=named))
    assert (tokenizer.chat_template, tokenizer.tool_template) == ("d", "t <tool_call>")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("f")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xef\xbb\xbfg")
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.chat_template, tokenizer.tool_template) == ("g", "f")


@pytest.mark.parametrize("file", ["chat_template.json", "tokenizer_config.json"])
@pytest.mark.parametrize("template", [5, {"default": "x"}, [{"name": "default", "template": None}]])
def test_a_template_that_is_no_text_is_refused(tmp_path: Path, file: str, template: Any) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / file).write_text(json.dumps({"chat_template": template}))
    with pytest.raises(UnsupportedTokenizer, match="is not a text"):
        load_tokenizer(tmp_path)
