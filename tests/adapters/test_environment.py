"""Variables that programs inherit: what a machine needs, and no name of a credential."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.process import INHERITED, INHERITED_PREFIXES, drop_unlisted, inherited
from tests.support.variables import NEEDED, SECRETS

PARTS = st.sampled_from(["KEY", "API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH", "key", "Token"])
HEADS = st.sampled_from([*INHERITED_PREFIXES, "MY_", "", "OPENAI_"])
TAILS = st.sampled_from(["", "_2", "_FILE", "_VALUE"])


def test_needed_variables_are_inherited_and_credentials_are_not() -> None:
    assert inherited({**NEEDED, **SECRETS}) == NEEDED


@given(HEADS, PARTS, TAILS, st.text(max_size=5))
def test_no_name_of_a_credential_is_inherited(head: str, part: str, tail: str, value: str) -> None:
    name = head + ("" if head.endswith("_") or not head else "_") + part + tail
    assert inherited({name: value}) == {}


@given(st.sampled_from(sorted(INHERITED)), st.sampled_from(["http", "https", "socks5"]), st.text("abc:%1", min_size=1))
def test_no_url_with_a_user_is_inherited(name: str, scheme: str, user: str) -> None:
    assert inherited({name: f"{scheme}://{user}@proxy:3128/"}) == {}


@given(
    st.dictionaries(st.text("AKEY_", min_size=1, max_size=6) | st.sampled_from(sorted(INHERITED)), st.text(max_size=3))
)
def test_only_listed_and_passed_variables_remain(variables: dict[str, str]) -> None:
    remaining = dict(variables)
    drop_unlisted(remaining, ["A_*", "KEY"])
    passed = {name: value for name, value in variables.items() if name.startswith("A_") or name == "KEY"}
    assert remaining == {**inherited(variables), **passed}
