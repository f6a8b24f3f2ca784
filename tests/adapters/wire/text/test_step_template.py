"""Templates of steps: results, bounds, and what they cannot reach."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.text.step_template import StepTemplate, TemplateFailed, TemplateInvalid


def rendered(source: str, **values: Any) -> str:
    return StepTemplate(source).render(values)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Q: {{ question }}", "Q: why?"),
        ("{% for d in docs %}[{{ loop.index }}] {{ d.text }}\n{% endfor %}", "[1] one\n[2] two\n"),
        ("{{ docs[0].text | upper }}", "ONE"),
        ("{{ docs | length }} {{ question | replace('?', '!') }}", "2 why!"),
        ("{{ user.name | default('nobody') }}", "nobody"),
        ("{{ names | join(', ') }}", "a, b"),
        ("{{ user | tojson }}", '{"id": 7}'),
        ("{% if user.id > 3 %}yes{% else %}no{% endif %}", "yes"),
        ("{{ question[0] }}{{ question[-1] }}", "w?"),
        ("{{ question ~ ' ' ~ (user.id + 1) }}{{ 7 % 4 }}{{ 'a' + 'b' }}", "why? 83ab"),
    ],
)
def test_results(source: str, text: str) -> None:
    docs = [{"text": "one"}, {"text": "two"}]
    assert rendered(source, question="why?", docs=docs, user={"id": 7}, names=["a", "b"]) == text


def test_the_names_that_a_template_reads() -> None:
    template = StepTemplate("{{ a }}{% for x in b %}{{ x.c }}{% endfor %}{% set d = e %}")
    assert template.variables == {"a", "b", "e"}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{{ a", 1),
        ("a\n{% if %}", 2),
        ("{{ a | nofilter }}", 1),
        ("{{ a | attr('x') }}", 1),
        ("{% endfor %}", 1),
        ("{% include 'x' %}", 1),
        ("{% import 'x' as y %}", 1),
        ("\n{% macro f(x) %}{{ f(x) }}{% endmacro %}", 2),
    ],
)
def test_an_invalid_template_has_its_line(source: str, line: int) -> None:
    with pytest.raises(TemplateInvalid) as caught:
        StepTemplate(source)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ text.upper() }}",
        "{{ text.format(1) }}",
        "{{ data.items() }}",
        "{{ data.__class__.__mro__ }}",
        "{{ data['__class__'] }}",
        "{{ items.append(1) }}",
        "{{ self.__init__ }}",
        "{{ range(3) }}",
        "{{ raise_exception('x') }}",
        "{{ cycler }}",
        "{{ namespace(a=1) }}",
        "{{ strftime_now('%Y') }}",
        "{{ text() }}",
        "{{ absent }}",
        "{{ text + 1 }}",
        "{{ 1 / 0 }}",
        "{{ items[9] }}",
        "{{ '%s' % text }}",
        "{{ loop }}",
    ],
)
def test_nothing_beyond_the_values_is_in_reach(source: str) -> None:
    with pytest.raises(TemplateFailed):
        rendered(source, text="a", data={"a": 1}, items=[1])


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 100000000 }}",
        "{{ 2 ** 100000 }}",
        "{{ big | replace('', big) }}",
        "{{ many | join(big) }}",
        "{% for a in many %}{% for b in many %}{% for c in many %}x{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in many %}{{ big }}{% endfor %}",
        "{% set x = big %}" + "{% set x = x ~ x %}" * 30 + "{{ x | length }}",
        "{% set x = big %}" + "{% set x = x + x %}" * 30 + "{{ x | length }}",
        "{% set x = [1] %}" + "{% set x = x + x %}" * 30 + "{{ x | length }}",
    ],
)
def test_the_work_and_the_result_are_bounded(source: str) -> None:
    with pytest.raises(TemplateFailed):
        rendered(source, big="a" * 10_000, many=[0] * 1_000)


@given(st.text("{}%|.[]()'ab 01+*\n", max_size=30) | st.text(max_size=20))
def test_any_text_is_refused_or_rendered(source: str) -> None:
    try:
        template = StepTemplate(source)
    except TemplateInvalid:
        return
    try:
        assert isinstance(template.render({"a": "x", "b": [1, {"a": 2}]}), str)
    except TemplateFailed as error:
        assert str(error)  # noqa: PT017
