import getpass
import io
import json
import re
import socket
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner, Result

from adapters.errors import CredentialError
from config.loader import load
from gateway.auth.audit import Actor
from gateway.auth.audit_cli import app as audit_app
from gateway.auth.cli import app
from gateway.auth.keys import id_of
from gateway.auth.listing import ListedKey, listed, show_json, show_table
from gateway.auth.pepper import load_pepper
from gateway.auth.store import KeyStore, StoredKey
from gateway.auth.table import KeyTable

CONFIG = """\
version: 1
state: {{database: "sqlite:///{folder}/state/state.db"}}
pools:
  - {{name: pool, endpoints: [http://127.0.0.1:9]}}
models:
  - {{name: chat, routes: [{{to: pool}}]}}
tenants:
  - {{name: acme, models: ["*"]}}
  - {{name: globex, models: ["*"]{keys}}}
"""
HASH = re.compile(r"[0-9a-f]{64}")


class Keys:
    """`headrace keys` on a configuration in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "headrace.yaml"
        self.write()

    def write(self, keys: str = "") -> None:
        self.file.write_text(CONFIG.format(folder=self.file.parent, keys=keys))

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(self.file)], env={"COLUMNS": "100"})

    def ok(self, *arguments: str) -> str:
        """Standard output of a command that must succeed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def create(self, *arguments: str) -> str:
        return self.ok("create", "--tenant", "acme", *arguments).removesuffix("\n")

    def listed(self) -> dict[str, dict[str, Any]]:
        return {key["id"]: key for key in json.loads(self.ok("list", "--json"))}

    def accepts(self, token: str, now: float | None = None) -> str | None:
        """The tenant that a gateway started now would see behind a key."""
        config = load(self.file)
        pepper = load_pepper(config)
        at = time.time() if now is None else now
        table = KeyTable.build(config, pepper, KeyStore(config.state.database, pepper).read_live(at).records.values())
        try:
            return table.authenticate(token, at).tenant
        except CredentialError:
            return None


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def test_create_prints_the_key_alone_and_it_works(keys: Keys, tmp_path: Path) -> None:
    result = keys.run("create", "--tenant", "acme", "--label", "ci")
    key = result.stdout.removesuffix("\n")
    key_id = id_of(key)
    assert key_id is not None
    assert keys.accepts(key) == "acme"
    assert f"Key {key_id} for tenant acme" in result.stderr
    assert key not in result.stderr
    listed = keys.listed()[key_id]
    assert (listed["tenant"], listed["label"], listed["status"], listed["expires"]) == ("acme", "ci", "active", None)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()} == {0o600}


def test_the_access_key_for_aws_is_printed_with_a_key_and_again(keys: Keys) -> None:
    plain, *lines = keys.ok("create", "--tenant", "acme", "--aws").splitlines()
    key_id = id_of(plain)
    assert key_id is not None
    assert lines[0] == f"AWS_ACCESS_KEY_ID=HRAK{key_id.upper()}"
    assert re.fullmatch(r"AWS_SECRET_ACCESS_KEY=[A-Za-z0-9_-]{40}", lines[1])
    assert keys.ok("aws", key_id).splitlines() == lines
    assert "there is no key" in keys.run("aws", "a" * 12).stderr
    secret = lines[1].partition("=")[2]
    assert secret not in plain
    assert secret not in "".join(str(record) for record in keys.listed().values())


def test_create_until_a_day(keys: Keys) -> None:
    day = datetime.now(UTC).date() + timedelta(days=10)
    key = keys.create("--expires", str(day))
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() + 86_400
    assert keys.accepts(key, midnight - 1) == "acme"
    assert keys.accepts(key, midnight) is None


def test_create_for_a_time(keys: Keys) -> None:
    before = time.time()
    key = keys.create("--expires", "90d")
    assert keys.accepts(key, before + 90 * 86_400 - 1) == "acme"
    assert keys.accepts(key, time.time() + 90 * 86_400) is None


def test_create_yaml_stores_nothing_and_its_line_works(keys: Keys) -> None:
    result = keys.run("create", "--tenant", "globex", "--label", "plant 7", "--expires", "36h", "--yaml")
    key = result.stdout.removesuffix("\n")
    assert result.exit_code == 0
    assert keys.listed() == {}
    (line,) = [line.strip() for line in result.stderr.splitlines() if line.strip().startswith("- {")]
    assert line.endswith("# plant 7")
    (pasted,) = yaml.safe_load(line)
    assert pasted["id"] == id_of(key)
    keys.write(keys=f", keys: [{line.partition('  #')[0].removeprefix('- ')}]")
    assert keys.accepts(key) == "globex"
    assert keys.accepts(key, time.time() + 36 * 3600 - 1) == "globex"
    assert keys.accepts(key, time.time() + 36 * 3600 + 86_400) is None
    listed = keys.listed()[pasted["id"]]
    assert (listed["stored_in"], listed["status"], listed["created"]) == ("file", "active", None)


GRANT = ["--models", "ch*", "--fronts", "chat", "--fronts", "models", "--labels", "team=search", "--labels", "a=b=c"]


def test_scopes_and_limits_of_a_key_are_stored_or_printed(keys: Keys) -> None:
    key_id = str(id_of(keys.create(*GRANT)))
    listed = keys.listed()[key_id]
    assert listed["scopes"] == {"models": ["ch*"], "fronts": ["chat", "models"]}
    assert (listed["labels"], listed["role"]) == ({"team": "search", "a": "b=c"}, "user")
    shown = " ".join(keys.ok("list").split())
    assert all(text in shown for text in ("models:ch*", "fronts:chat", "fronts:models", "team=search", "a=b=c"))
    result = keys.run("create", "--tenant", "globex", "--yaml", *GRANT)
    (line,) = [line.strip() for line in result.stderr.splitlines() if line.strip().startswith("- {")]
    keys.write(keys=f", keys: [{line.removeprefix('- ')}]")
    pasted = keys.listed()[str(id_of(result.stdout.strip()))]
    assert {name: pasted[name] for name in ("scopes", "labels")} == {n: listed[n] for n in ("scopes", "labels")}
    admin = keys.create("--role", "tenant-admin")
    assert keys.listed()[str(id_of(admin))]["role"] == "tenant-admin"


FRONTS = (
    "'chat', 'text_completion', 'embeddings', 'rerank', 'score', 'classify', 'infer', 'explain', 'app', 'models', "
    "'feedback', 'files', 'batches' or 'metrics'"
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--role", "admin"], "--role: expected 'user', 'tenant-admin' or 'operator'"),
        (["--role", "operator", "--models", "chat"], "scopes leave nothing of the role operator: give one of the two"),
        (["--models", "cat"], "--models: tenant acme has no model 'cat'; did you mean 'chat'?"),
        (["--routes", "gold"], "--routes: tenant acme has no route 'gold'"),
        (["--fronts", "images"], f"--fronts: expected {FRONTS}"),
        (["--labels", "team"], "--labels: expected NAME=VALUE, got 'team'"),
        (["--labels", "=x"], "--labels: expected a label's name: letters, digits and . _ / -"),
    ],
)
def test_an_invalid_option_of_a_key_is_explained(keys: Keys, arguments: list[str], sentence: str) -> None:
    result = keys.run("create", "--tenant", "acme", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {sentence}\n")


def test_changes_by_the_command_line_are_in_the_log(keys: Keys) -> None:
    key_id = str(id_of(keys.create("--label", "ci")))
    keys.ok("revoke", key_id)
    audit = CliRunner().invoke(audit_app, ["list", "--json", "--config", str(keys.file)])
    revoke, create = json.loads(audit.stdout)
    assert create["actor"] == f"cli:{getpass.getuser()}@{socket.gethostname()}"
    assert (create["action"], create["target"]) == ("key.create", f"acme/{key_id}")
    assert (revoke["action"], revoke["seq"], revoke["outcome"]) == ("key.revoke", 2, "done")
    shown = CliRunner().invoke(audit_app, ["list", "--limit", "1", "--config", str(keys.file)], env={"COLUMNS": "200"})
    assert "key.revoke" in shown.stdout
    assert "key.create" not in shown.stdout


def test_a_changed_record_is_reported(keys: Keys, tmp_path: Path) -> None:
    def verify(*arguments: str) -> Result:
        return CliRunner().invoke(audit_app, ["verify", *arguments, "--config", str(keys.file)])

    keys.create()
    keys.create()
    whole = verify()
    assert (whole.exit_code, whole.stderr) == (0, "2 entries, each follows the one before it.\n")
    head = whole.stdout.strip()
    assert verify("--head", head).exit_code == 0
    with sqlite3.connect(tmp_path / "state" / "state.db") as raw:
        raw.executescript("DROP TRIGGER audit_update; UPDATE audit SET actor = 'x' WHERE seq = 1")
    raw.close()
    changed = verify("--head", head)
    assert (changed.exit_code, changed.stdout) == (1, "")
    assert changed.stderr == "error: the audit log is not intact: entry 1 was changed\n"


def test_a_hash_is_printed_by_create_yaml_only(keys: Keys) -> None:
    assert HASH.search(keys.run("create", "--tenant", "acme", "--yaml").stderr)
    first = keys.run("create", "--tenant", "acme")
    key_id = str(id_of(first.stdout.strip()))
    shown = [
        first,
        keys.run("list"),
        keys.run("list", "--json"),
        keys.run("rotate", key_id),
        keys.run("revoke", key_id),
    ]
    assert [result.exit_code for result in shown] == [0] * 5
    assert not any(HASH.search(result.stdout + result.stderr) for result in shown)


def test_revoke_ends_a_key_once(keys: Keys) -> None:
    key = keys.create()
    key_id = str(id_of(key))
    assert keys.ok("revoke", key_id) == ""
    assert keys.accepts(key) is None
    assert keys.listed()[key_id]["status"] == "revoked"
    again = keys.run("revoke", key_id)
    assert (again.exit_code, again.stderr) == (1, f"error: key {key_id} is revoked already\n")


def test_rotate_lets_both_work_for_the_overlap(keys: Keys) -> None:
    old = keys.create("--label", "ci")
    new = keys.ok("rotate", str(id_of(old)), "--overlap", "1h").removesuffix("\n")
    assert (keys.accepts(old), keys.accepts(new)) == ("acme", "acme")
    later = time.time() + 3600
    assert (keys.accepts(old, later), keys.accepts(new, later)) == (None, "acme")
    listed = keys.listed()[str(id_of(old))]
    assert (listed["status"], listed["replaced_by"]) == ("replaced", id_of(new))


def test_rotate_without_overlap_ends_the_old_key_at_once(keys: Keys) -> None:
    old = keys.create()
    new = keys.ok("rotate", str(id_of(old)), "--overlap", "0s", "--expires", "1h").strip()
    assert (keys.accepts(old), keys.accepts(new)) == (None, "acme")
    assert keys.accepts(new, time.time() + 3600) is None


def test_list_shows_a_table_with_labels_as_they_are(keys: Keys) -> None:
    key_id = str(id_of(keys.create("--label", "[red]ci[/red]")))
    shown = keys.ok("list")
    assert key_id in shown
    assert "[red]ci[/red]" in shown


@given(
    tenant=st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True),
    label=st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=80),
    status=st.sampled_from(["active", "replaced", "expired", "revoked"]),
    scopes=st.lists(st.from_regex(r"[a-z*]{1,40}", fullmatch=True), max_size=4),
)
def test_a_list_fits_80_columns_and_cuts_nothing(tenant: str, label: str, status: Any, scopes: list[str]) -> None:
    key = ListedKey(
        "dbayyt437i6g", tenant, label, status, "file", "2026-11-22T16:00:00Z", "2027-07-01T00:00:00Z", None,
        "75xaxqchemno", "tenant-admin", {"models": scopes},
    )  # fmt: skip
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setattr("sys.stdout", printed)
        show_table([key])
    lines = printed.getvalue().splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    row = lines[1].split()
    assert row[0] == "dbayyt437i6g"
    assert {status, "2026-11-22", "2027-06-30"} <= set(row)
    shown = re.sub(r"\s", "", printed.getvalue())
    # Cells that wrap are interleaved, so only the multiset of their characters is the same.
    words = (
        tenant
        + label
        + "tenant-admin"
        + "".join(f"models:{name}" for name in scopes)
        + "inthefilereplacedby75xaxqchemno"
    )
    assert not Counter(re.sub(r"\s", "", words)) - Counter(shown)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tenant", "acmee"], "--tenant: the configuration has no tenant 'acmee'; did you mean 'acme'?"),
        (["--tenant", "zzz"], "--tenant: the configuration has no tenant 'zzz'"),
        (["--tenant", "acme", "--expires", "2020-01-01"], "--expires: 2020-01-01 has already passed"),
        (
            ["--tenant", "acme", "--expires", "99999999d"],
            "--expires: 99999999d ends after the year 9999; leave it out for a key without an end",
        ),
        (["--tenant", "acme", "--expires", "0s"], "--expires: 0s has already passed"),
        (
            ["--tenant", "acme", "--expires", "2027-02-30"],
            "--expires: expected a day such as 2027-06-30 or a duration such as 90d, got '2027-02-30'",
        ),
        (
            ["--tenant", "acme", "--expires", "soon"],
            "--expires: expected a day such as 2027-06-30 or a duration such as 90d, got 'soon'",
        ),
        (["--tenant", "acme", "--label", "a\nb"], "--label: at most 100 printable characters on one line"),
        (["--tenant", "acme", "--label", "x" * 101], "--label: at most 100 printable characters on one line"),
    ],
)
def test_a_wrong_argument_of_create_is_a_sentence(keys: Keys, arguments: list[str], sentence: str) -> None:
    result = keys.run("create", *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {sentence}\n")


def test_wrong_arguments_of_rotate(keys: Keys) -> None:
    key_id = str(id_of(keys.create()))
    overlap = keys.run("rotate", key_id, "--overlap", "3")
    assert overlap.exit_code == 2
    assert overlap.stderr.startswith("error: --overlap: expected a duration such as")
    assert keys.run("rotate", key_id, "--overlap", "99999999d").exit_code == 2
    assert keys.run("rotate", key_id, "--expires", "2020-01-01").exit_code == 2
    assert len(keys.listed()) == 1


def test_an_unknown_id(keys: Keys) -> None:
    for command in ("revoke", "rotate"):
        result = keys.run(command, "aaaaaaaaaaaa")
        assert (result.exit_code, result.stderr) == (1, "error: no issued key has the id 'aaaaaaaaaaaa'\n")


def test_a_key_of_the_file_is_changed_in_the_file(keys: Keys) -> None:
    keys.write(keys=f', keys: [{{id: aaaaaaaaaaaa, hash: "{"0" * 64}"}}]')
    for command in ("revoke", "rotate"):
        result = keys.run(command, "aaaaaaaaaaaa")
        assert result.exit_code == 2
        assert "defined in the YAML file: change it there, under tenant globex" in result.stderr


def test_a_configuration_that_is_wrong(keys: Keys) -> None:
    keys.file.write_text("version: 1\n")
    result = keys.run("list")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert str(keys.file) in result.stderr


def test_a_database_that_cannot_be_used(keys: Keys) -> None:
    keys.create()
    (keys.file.parent / "state" / "state.db").write_bytes(b"no database" * 1000)
    result = keys.run("list")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the key database cannot be used now")


def test_many_keys_are_lines_and_a_limit_takes_the_newest(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [id_of(keys.ok("create", "--tenant", tenant, "--label", f"key {number}").strip())
           for number, tenant in enumerate(["acme", "globex", "acme"])]  # fmt: skip
    monkeypatch.setattr("gateway.auth.listing.MOST_FITTED", 2)
    lines = [line.split() for line in keys.ok("list").splitlines()]
    assert lines[0] == ["id", "tenant", "status", "created", "expires", "notes"]
    assert [line[:3] + line[-2:] for line in lines[1:]] == [
        [ids[0], "acme", "active", "key", "0"],
        [ids[1], "globex", "active", "key", "1"],
        [ids[2], "acme", "active", "key", "2"],
    ]
    assert [key["id"] for key in json.loads(keys.ok("list", "--json", "--limit", "2"))] == ids[1:]
    assert [key["id"] for key in json.loads(keys.ok("list", "--json", "--tenant", "acme"))] == [ids[0], ids[2]]


def test_a_list_begins_before_all_keys_are_read(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys without a bound neither delay the first line nor are in memory at once."""
    config = load(keys.file)
    store = KeyStore(config.state.database, load_pepper(config))
    for number in range(6):
        store.create("acme", f"key {number}", by=Actor("test"), now=float(number))
    monkeypatch.setattr("gateway.auth.listing.MOST_FITTED", 2)
    monkeypatch.setattr("gateway.auth.store.in_parts", lambda ids: ([each] for each in ids))
    printed: list[int] = []

    def counted() -> Iterator[StoredKey]:
        for key in store.walk():
            printed.append(capsys.readouterr().out.count("\n"))
            yield key

    for show in (show_table, show_json):
        printed.clear()
        capsys.readouterr()
        show(listed(config, counted(), 9.0))
        assert printed[0] == 0
        assert sum(printed) > 0, "nothing was printed before the last key was read"
