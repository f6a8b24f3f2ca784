"""Variables that programs inherit: what a machine needs, and no name of a credential."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.environment import NAMES, PREFIXES, drop_unlisted, inherited

NEEDED = {
    "PATH": "/usr/bin", "HOME": "/home/me", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0",
    "HF_HOME": "/cache", "HTTP_PROXY": "http://proxy:3128", "TOKENIZERS_PARALLELISM": "false", "LD_LIBRARY_PATH": "/l",
    "PIP_NO_INDEX": "1", "VLLM_CPU_KVCACHE_SPACE": "4", "PYTHONPATH": "/p", "SSL_CERT_FILE": "/c.pem",
}  # fmt: skip
SECRETS = {
    "OPENAI_API_KEY": "sk-1", "PROVIDER_KEY": "sk-2", "HF_TOKEN": "hf-1", "VLLM_API_KEY": "v",
    "AWS_SECRET_ACCESS_KEY": "a",
    "KEY_PEPPER": "p", "REDIS_PASSWORD": "r", "DATABASE_URL": "postgresql://u:p@h/d",
    "PIP_INDEX_URL": "https://u:p@pypi",
    "HTTPS_PROXY": "http://user:pass@proxy:3128", "HUGGING_FACE_HUB_TOKEN": "h", "TF_AUTH": "x", "ANYTHING": "else",
}  # fmt: skip
PARTS = st.sampled_from(["KEY", "API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH", "key", "Token"])
HEADS = st.sampled_from([*PREFIXES, "MY_", "", "OPENAI_"])
TAILS = st.sampled_from(["", "_2", "_FILE", "_VALUE"])


def test_needed_variables_are_inherited_and_credentials_are_not() -> None:
    assert inherited({**NEEDED, **SECRETS}) == NEEDED


@given(HEADS, PARTS, TAILS, st.text(max_size=5))
def test_no_name_of_a_credential_is_inherited(head: str, part: str, tail: str, value: str) -> None:
    name = head + ("" if head.endswith("_") or not head else "_") + part + tail
    assert inherited({name: value}) == {}


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(["http", "https", "socks5"]), st.text("abc:%1", min_size=1))
def test_no_url_with_a_user_is_inherited(name: str, scheme: str, user: str) -> None:
    assert inherited({name: f"{scheme}://{user}@proxy:3128/"}) == {}


@given(st.dictionaries(st.text("AKEY_", min_size=1, max_size=6) | st.sampled_from(sorted(NAMES)), st.text(max_size=3)))
def test_only_listed_and_passed_variables_remain(variables: dict[str, str]) -> None:
    remaining = dict(variables)
    drop_unlisted(remaining, ["A_*", "KEY"])
    passed = {name: value for name, value in variables.items() if name.startswith("A_") or name == "KEY"}
    assert remaining == {**inherited(variables), **passed}
