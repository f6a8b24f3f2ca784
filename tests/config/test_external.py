import traceback
from pathlib import Path

import pytest

from config.loader import ConfigError, load, read

from .conftest import RIGHT, Complaints

SECRET = "sk-do-not-show-1f7c"
PEM = "-----BEGIN CERTIFICATE-----\n"
KEYED = RIGHT.replace("name: spare", "name: spare\n    key: {}")
URL = "[http://10.0.0.7:8000]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


def key_of(file: Path, written: str) -> str:
    file.write_text(KEYED.format(written))
    key = load(file).pools[1].key
    assert key is not None
    return key.get_secret_value()


def test_a_secret_from_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY", SECRET)
    assert key_of(file, "${HEADRACE_TEST_KEY}") == SECRET


def test_a_variable_is_never_read_as_a_reference_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY", "file:/etc/passwd")
    assert key_of(file, "${HEADRACE_TEST_KEY}") == "file:/etc/passwd"
    monkeypatch.setenv("HEADRACE_TEST_KEY", "${HOME}")
    assert key_of(file, "${HEADRACE_TEST_KEY}") == "${HOME}"


def test_a_secret_from_a_file_beside_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "key").write_text(SECRET + "\n")
    assert key_of(file, "file:key") == SECRET
    (file.parent / "key").write_bytes(SECRET.encode() + b"\r\n")
    monkeypatch.setenv("HEADRACE_TEST_FOLDER", str(file.parent))
    assert key_of(file, "file:${HEADRACE_TEST_FOLDER}/key") == SECRET
    assert read(file).sources == {file, file.parent / "key"}


INLINE = [SECRET, f"'{SECRET}'", "12345678", "true", f"[{SECRET}]", f"{{a: {SECRET}}}", f"Bearer {SECRET}"]
HALF_INLINE = [f"${{HEADRACE_TEST_NOT_SET:-{SECRET}}}", f"{SECRET}-${{HOME}}"]


@pytest.mark.parametrize("written", INLINE + HALF_INLINE)
def test_a_secret_written_inline_is_refused_and_not_shown(complaints: Complaints, written: str) -> None:
    assert complaints(KEYED.format(written)) == [
        "6: pools[1].key: is a secret, which is never written here: write ${NAME} (environment) or file:PATH, "
        "and change it now"
    ]


@pytest.mark.parametrize(
    ("written", "content", "problem"),
    [
        ("${HEADRACE_TEST_NOT_SET}", None, "the environment variable HEADRACE_TEST_NOT_SET is not set"),
        ("${HEADRACE_TEST_EMPTY}", None, "the environment variable HEADRACE_TEST_EMPTY is empty"),
        ("file:key", None, "{folder}/key cannot be read: No such file or directory"),
        ("file:key", b"\n", "the secret is empty"),
        ("file:key", SECRET.encode() + b"\nsecond\n", "the secret holds a line break or control character"),
        ("file:key", b"\xff", "{folder}/key is not UTF-8 text"),
        ("file:key", b"x" * (2**20 + 1), "{folder}/key is larger than 1 MiB"),
    ],
)
def test_a_reference_that_leads_nowhere(
    complaints: Complaints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    content: bytes | None,
    problem: str,
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_EMPTY", "")
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    (line,) = complaints(KEYED.format(written))
    assert line.startswith(f"6: pools[1].key: {problem.format(folder=tmp_path)}")


def test_secrets_are_in_no_text_of_the_configuration(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY", SECRET)
    database = "state: {database: 'postgresql://me:${HEADRACE_TEST_KEY}@db/x'}\nauth: {pepper: '${HEADRACE_TEST_KEY}'}"
    file.write_text(KEYED.format("${HEADRACE_TEST_KEY}") + database)
    config = load(file)
    assert config.state.database == f"postgresql://me:{SECRET}@db/x"
    assert SECRET not in str(config) + repr(config) + repr(config.pools[1].key)


@pytest.mark.parametrize(
    "line",
    [
        "auth: {pepper: %s}",
        "auth: {papper: %s}",
        "auth: %s",
        "state: {database: 'postgresql+%s'}",
        "listen: {http: %s}",
        "http: {max_body: %s, head_timeout: '${HEADRACE_TEST_KEY}'}",
        "access_log: {to: '${HEADRACE_TEST_KEY}'}",
        "auth: {pepper: %s, pepper: %s}",
        "auth: {pepper: '%s",
        "listen: {tls: {cert: %s, key: %s}}",
    ],
)
def test_secrets_are_in_no_error_whatever_the_mistake(file: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY", SECRET)
    inline = "inline-secret-77"
    text = line.replace("%s", inline)
    pem = "tls" in line  # a path is not secret, and is shown
    file.write_text(RIGHT + text + "\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.problems)
    assert SECRET not in shown
    assert pem or inline not in shown


def test_variables_in_other_texts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_HOST", "a.internal")
    monkeypatch.setenv("HEADRACE_TEST_EMPTY", "")
    file.write_text(
        RIGHT.replace(URL, "['http://${HEADRACE_TEST_HOST}:${HEADRACE_TEST_EMPTY:-8000}/${HEADRACE_TEST_NOT_SET:-}x']")
    )
    assert load(file).pools[1].endpoints[0].url == "http://a.internal:8000/x"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "http://${HEADRACE_TEST_NOT_SET}",
            "6: pools[1].endpoints[0]: the environment variable HEADRACE_TEST_NOT_SET is not set",
        ),
        ("http://${HOME", "6: pools[1].endpoints[0]: write ${NAME} or ${NAME:-default}"),
        ("http://${1}", "6: pools[1].endpoints[0]: write ${NAME} or ${NAME:-default}"),
        ("http://${}", "6: pools[1].endpoints[0]: write ${NAME} or ${NAME:-default}"),
    ],
)
def test_a_variable_that_is_not_there_is_the_only_problem(complaints: Complaints, url: str, problem: str) -> None:
    assert complaints(RIGHT.replace(URL, f"['{url}']")) == [problem]


TLS = RIGHT + "listen: {tls: {cert: tls/cert.pem, key: tls/key.pem}}\n"


def test_pem_files_are_relative_to_the_file(file: Path) -> None:
    folder = file.parent / "tls"
    folder.mkdir()
    for name in ("cert.pem", "key.pem"):
        (folder / name).write_text(PEM)
    file.write_text(TLS)
    reading = read(file)
    assert reading.config is not None
    assert reading.config.listen.tls is not None
    assert reading.config.listen.tls.cert == str(folder / "cert.pem")
    assert reading.sources == {file, folder / "cert.pem", folder / "key.pem"}


def test_pem_files_that_are_not_there_or_no_pem(complaints: Complaints, tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "key.pem").write_text("no key")
    assert complaints(TLS) == [
        f"15: listen.tls.cert: {tmp_path}/tls/cert.pem cannot be read: No such file or directory",
        f"15: listen.tls.key: {tmp_path}/tls/key.pem is not a PEM file: it has no -----BEGIN line",
    ]


def test_a_client_certificate_needs_its_key(complaints: Complaints, tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text(PEM)
    reported = complaints(RIGHT.replace(URL, "[https://a]\n    tls: {cert: c.pem}"))
    assert reported == ["7: pools[1].tls: cert and key go together: give both or neither"]
