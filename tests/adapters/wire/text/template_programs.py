"""Templates that attack the sandbox, and random ones. `python -m` runs them within the limits of a process."""

import random
import resource
import sys
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from adapters.wire.text.chat_jinja import ChatEnvironment

VALUES: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hello world"}, {"role": "assistant", "content": "hi"}],
    "text": "some text",
    "items": [1, "a", {"b": [2]}],
}
MEMORY = 3 * 1024**3
SECONDS = 1200
"""Of a processor: far above the ten that all attacks take together."""
PROGRAMS = 400


def doubled(start: str, step: str, use: str) -> str:
    """A value that contains itself twice, sixty times."""
    steps = "".join(f"{{% set ns.{name} = {step.replace('X', 'ns.' + name)} %}}" for name in "ab")
    return f"{{% set ns = namespace(a={start}, b={start}) %}}{{% for i in range(60) %}}{steps}{{% endfor %}}{use}"


ATTACKS = [
    *(Path(__file__).parent / "template_attacks.txt").read_text().splitlines(),
    "{% set x %}{% for i in range(99999) %}" + "a" * 10_000 + "{% endfor %}{% endset %}",
    "{% macro f() %}" + "a" * 10_000 + "{% endmacro %}{% for i in range(99999) %}{% set x = f() %}{{ x }}{% endfor %}",
    "{% for i in range(99999) %}" + "{{ '' }}" * 50_000 + "{% endfor %}",
    "{% macro f() %}" + "{{ '' }}" * 50_000 + "{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}",
    doubled("[1]", "[X, X]", "{{ ns.a }}"),
    doubled("[1]", "[X, X]", "{{ ns.a == ns.b }}"),
    doubled("[1]", "[X, X]", "{{ ns.a in [ns.b] }}"),
    doubled("[1]", "[X, X]", "{{ ns.a is eq ns.b }}"),
    doubled("[1]", "[X, X]", "{{ [ns.a] | tojson }}"),
    doubled("[1]", "[X, X]", "{{ [ns.a] | join }}"),
    doubled("[1]", "[X, X]", "{{ [ns.a, ns.b] | sort }}"),
    doubled("[1]", "[X, X]", "{{ '%s' % [ns.a] }}"),
    doubled("[1]", "[X, X]", "{{ '{}'.format(ns.a) }}"),
    doubled("[1]", "[X, X]", "{{ [ns.a].index(ns.b) }}"),
    doubled("[1]", "[X, X]", "{{ ns }}"),
    doubled("[1]", "[X, X]", "{% for i in [ns.a, ns.b] %}{% if loop.changed(i) %}{% endif %}{% endfor %}"),
    doubled("(1,)", "(X, X)", "{{ {ns.a: 1} }}"),
    doubled("(1,)", "(X, X)", "{{ {}[ns.a] }}"),
    doubled("(1,)", "(X, X)", "{{ {}.get(ns.a) }}"),
    doubled("(1,)", "(X, X)", "{{ dict([(ns.a, 1)]) }}"),
    doubled("(1,)", "(X, X)", "{{ [ns.a] | unique | list }}"),
    doubled("{'a': 1}", "{'a': X, 'b': X}", "{{ ns.a | string }}"),
]
"""Templates that would take too much time or memory, or access forbidden objects."""

_NUMBERS = st.sampled_from(["0", "1", "3", "-1", "99999", "10**9", "2**64", "1.5", "999"])
_TEXTS = st.sampled_from(["'a'", "'%9s'", "'{:9}'", "'a b'", "text", "'\\n'", "'<a>'", "''"])
_LISTS = st.sampled_from(["items", "messages", "[1, 2]", "range(999)", "range(99999)", "(1, 2)", "{'a': items}"])
_FILTERS = st.sampled_from(sorted(ChatEnvironment().filters))
_CALLED = [
    "upper",
    "center",
    "ljust",
    "zfill",
    "replace",
    "split",
    "join",
    "format",
    "expandtabs",
    "items",
    "keys",
    "get",
    "index",
    "count",
    "title",
]
_METHODS = st.sampled_from([*_CALLED, "encode"])


def _expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from(["+", "-", "*", "/", "//", "**", "%", "~", "==", "<", "in", "and", "or"]),
            inner,
        ),
        st.builds("({} | {}({}))".format, inner, _FILTERS, arguments),
        st.builds("({}).{}({})".format, inner, _METHODS, arguments),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{}[{}:{}]".format, inner, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    )


EXPRESSIONS = st.recursive(_NUMBERS | _TEXTS | _LISTS | st.sampled_from(["x", "y"]), _expressions, max_leaves=8)


def _statements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{{% for i in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% if {} %}}{}{{% endif %}}".format, EXPRESSIONS, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds("{{% set x %}}{}{{% endset %}}".format, inner),
    )


SOURCES = st.recursive(
    st.builds("{{{{ {} }}}}".format, EXPRESSIONS)
    | st.builds("{{% set {} = {} %}}".format, st.sampled_from("xy"), EXPRESSIONS),
    _statements,
    max_leaves=6,
)


# ── random programs of a seed, without Hypothesis ─────────────────────────────────────────────────────────


def _expression(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice(
            ["ns.x", "ns.y", "ns.x", "ns.y", "9", "999", "99999", "10**9", "'a'", "'%99d'", "items", "text"]
        )
    first, second = _expression(rng, depth - 1), _expression(rng, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return f"({first} {rng.choice(['+', '-', '*', '/', '//', '**', '%', '~', '==', '<', 'in'])} {second})"
    if kind == 1:
        return f"({first} | {rng.choice(_NAMES)}({rng.choice(['', second])}))"
    if kind == 2:
        return f"({first}).{rng.choice(_CALLED)}({rng.choice(['', second])})"
    return rng.choice([f"[{first}, {second}]", f"({first}, {second})", f"{first}[1:]", f"{{{first}: {second}}}"])


_NAMES = sorted(name for name in ChatEnvironment().filters if not name.startswith("_"))


def program(seed: int) -> str:
    """A program that lets values grow in loops."""
    rng = random.Random(seed)
    start = rng.choice(["'ab'", "[1]", "7", "(1,)", "{'a': 1}"])
    steps = "".join(f"{{% set ns.{rng.choice('xy')} = {_expression(rng, 3)} %}}" for _ in range(rng.randint(1, 4)))
    loop = f"{{% for i in range({rng.choice([3, 60, 99999])}) %}}{steps}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}, y={start}) %}}{loop}{{{{ {_expression(rng, 2)} }}}}"


def run(sources: list[str], *, refused: bool = False) -> None:
    """Render each template. `refused`: each of them must fail."""
    for source in sources:
        environment = ChatEnvironment()
        try:
            environment.rendered(environment.from_string(source), VALUES)
        except (MemoryError, AssertionError) as error:
            sys.exit(f"{type(error).__name__}: {source}")
        except Exception:
            continue
        if refused:
            sys.exit(f"rendered: {source}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if sys.argv[1] == "attacks":
        run(ATTACKS, refused=True)
    else:
        first = int(sys.argv[2]) * PROGRAMS
        run([program(seed) for seed in range(first, first + PROGRAMS)])
