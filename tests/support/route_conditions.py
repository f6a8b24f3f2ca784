"""Facts of requests, and conditions of routes that match some of them."""

from collections.abc import Mapping

from hypothesis import strategies as st

from config.schema.config import MatchConfig
from policies.facts import Facts


def facts(
    tenant: str = "acme",
    model: str = "chat",
    headers: Mapping[str, str] | None = None,
    stream: bool = False,
    prompt_tokens: int = 10,
    user: str | None = None,
) -> Facts:
    return Facts(tenant, "key-1", model, headers or {}, stream, prompt_tokens, user, "req-1", requested=model)


names = st.sampled_from(["a", "b", "ab", "ba", "abc"])
globs = st.lists(st.sampled_from(["a", "b", "a*", "?b", "[ab]", "*c", "*"]), max_size=2).map(tuple)
optional_globs = st.none() | globs
conditions = st.builds(
    MatchConfig,
    tenant=optional_globs,
    model=optional_globs,
    header=st.none() | st.dictionaries(st.sampled_from(["X-A", "x-b"]), st.sampled_from(["a", "a*"])),
    stream=st.none() | st.booleans(),
    prompt_tokens=st.none()
    | st.builds("{}{}".format, st.sampled_from(["<", "<=", ">", ">=", "> "]), st.integers(0, 3)),
)
requests = st.builds(
    facts,
    tenant=names,
    model=names,
    headers=st.dictionaries(st.sampled_from(["x-a", "x-b"]), names),
    stream=st.booleans(),
    prompt_tokens=st.integers(0, 4),
)
