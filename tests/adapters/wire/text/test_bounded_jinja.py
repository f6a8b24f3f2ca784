"""The sandbox of templates: no template takes unbounded time or memory."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jinja2.exceptions import SecurityError

from adapters.upstreams.text.chat_template import PromptTemplate, TemplateError
from adapters.wire.text.chat_jinja import ChatEnvironment
from adapters.wire.text.step_template import StepTemplate, TemplateFailed, TemplateInvalid
from tests.adapters.wire.text import template_programs
from tests.adapters.wire.text.template_programs import VALUES


def rendered(source: str, **values: Any) -> str:
    environment = ChatEnvironment()
    return environment.rendered(environment.from_string(source), {**VALUES, **values})


@pytest.mark.processes
def test_templates_that_make_or_take_too_much_are_refused_within_the_limits_of_a_process() -> None:
    """The system ends the process if it needs 3 GiB of memory."""
    command = [sys.executable, "-m", template_programs.__name__, "attacks"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.processes
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.nightly), pytest.param(2, marks=pytest.mark.nightly)]
)
def test_random_programs_stay_within_the_limits_of_a_process(seed: int) -> None:
    command = [sys.executable, "-m", template_programs.__name__, "random", str(seed)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(template_programs.SOURCES)
def test_any_program_is_refused_or_rendered_as_a_step(source: str) -> None:
    try:
        template = StepTemplate(source)
    except TemplateInvalid:
        return
    try:
        assert isinstance(template.render(VALUES), str)
    except TemplateFailed as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ '%s-%03d' % ('a', 7) }}", "a-007"),
        ("{{ '%s-%s' | format(1, 2) }}{{ '{:>3}|{b}'.format(1, b=2) }}", "1-2  1|2"),
        ("{{ 'a' ~ 1 ~ [2] }}", "a1[2]"),
        ("{{ 'a b-c' | wordcount }}{{ [1, 2, 3] | slice(2) | list }}{{ '<b>x</b>' | striptags }}", "3[[1, 2], [3]]x"),
        ("{{ 'aa bb' | wordwrap(2) }}{{ {'a': 1} | pprint }}{{ [7] | random }}", "aa\nbb{'a': 1}7"),
        ("{{ 2048 | filesizeformat }}{{ '<' | forceescape }}{{ {'a': 1} | xmlattr }}", '2.0 kB&lt; a="1"'),
        ("{{ 'https://a.com' | urlize }}", '<a href="https://a.com" rel="noopener">https://a.com</a>'),
        ("{{ [1, 2] + [3] }}{{ 'ab' * 2 }}{{ 2 ** 3 }}{{ 7 // 2 }}{{ 7 % 4 }}", "[1, 2, 3]abab833"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user,assistant"),
        ("{% set seven = '7' %}{{ seven | int }}{{ seven | float }}", "77.0"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ messages | groupby('role') | map('first') | list }}", "['assistant', 'user']"),
        ("{% for m in messages recursive %}{{ m.role if m is mapping else m }}{% endfor %}", "userassistant"),
        ("{{ messages[0].content.split(' ')[-1].strip().upper() }}", "WORLD"),
        ("{{ '-'.join(['a', 'b']) }}{{ 'abc'.center(5) }}|{{ 'abc' | center(5) }}|", "a-b abc | abc |"),
        ("{{ 'a<b' | e }}{{ 'x' | safe }}{{ 3.14159 | round(2) }}{{ '7' | int }}", "a&lt;bx3.147"),
        ("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"),
        ("{% set ns = namespace(x='') %}{% for i in range(3) %}{% set ns.x = ns.x ~ i %}{% endfor %}{{ ns.x }}", "012"),
        (
            "{{ dict(a=1) | tojson }}{{ {'b': 2}.items() | list }}{{ 'a' in messages[0].content }}",
            "{\"a\": 1}[('b', 2)]False",
        ),
        ("{{ messages[1:] | length }}{{ 'abc'[::-1] }}{{ [3, 1, 2] | sort | first }}{{ [1, 2] | sum }}", "1cba13"),
        ("{% set x %}{{ 'a' }}b{% endset %}{{ x | replace('a', 'c') | indent(2, true) }}", "  cb"),
        (
            "{% call(x) f() %}{{ x }}{% endcall %}".replace(
                "{% call", "{% macro f() %}{{ caller(1) }}{% endmacro %}{% call"
            ),
            "1",
        ),
        (
            "{% for i in range(9) %}{% if loop.changed(i // 3) %}{{ loop.cycle('a', 'b') }}{% endif %}{% endfor %}",
            "aba",
        ),
        (
            "{{ 'x' is in ['x', 1] }}{{ 4 is divisibleby 2 }}{{ 1 < 2 < 3 }}{{ messages == messages }}",
            "TrueTrueTrueTrue",
        ),
    ],
)
def test_the_language_is_jinja_s(source: str, text: str) -> None:
    assert rendered(source) == text


def test_wrapping_a_text_takes_a_step_for_each_character() -> None:
    source = "{% for i in range(times) %}{% set x = text | wordwrap(1) %}{% endfor %}"
    assert rendered(source, text="a " * 8_000, times=10) == ""
    with pytest.raises(SecurityError, match="too many steps"):
        rendered(source, text="a " * 8_000, times=300)


DEEP = [
    "{% for i in x %}" * 60 + "{% endfor %}" * 60,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 9000 + "1 }}",
]


@pytest.mark.parametrize("source", DEEP, ids=["loops", "parentheses", "signs"])
def test_a_template_that_is_nested_too_deep_is_invalid(source: str) -> None:
    with pytest.raises(TemplateInvalid):
        StepTemplate(source)
    with pytest.raises(TemplateError):
        PromptTemplate(source)


def test_a_long_conversation_is_rendered() -> None:
    """Five thousand messages, with the operations of usual templates."""
    source = (
        "{% set ns = namespace(rest=[]) %}{% for m in messages %}{% if m.role == 'user' and not loop.last %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% else %}"
        "{% set ns.rest = ns.rest + [m] %}{{ m.content.split('</think>')[-1].lstrip() ~ m.role }}{% endif %}"
        "{% endfor %}"
    )
    messages = [{"role": ("user", "assistant")[i % 2], "content": "word " * 100} for i in range(5000)]
    assert len(rendered(source, messages=messages)) > 2_000_000
