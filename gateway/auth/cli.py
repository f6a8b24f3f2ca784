"""`headrace keys`: issue, list, revoke and rotate API keys.

Standard output holds what a script wants (a new key's plaintext alone, or the list); everything else goes to
standard error. Exit status 2 is a wrong argument or configuration, 1 a change that could not be made.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from config import default_path
from config.loader import ConfigError, load
from config.schema import Config
from config.units import parse_duration
from gateway.auth.errors import KeyConfigError, KeysError
from gateway.auth.keys import digest, end_of_day, new_key
from gateway.auth.listing import as_json, listed, show_table, utc
from gateway.auth.pepper import load_pepper, pepper_path
from gateway.auth.store import KeyStore

app = typer.Typer(name="keys", help="Issue, list, revoke and rotate API keys.", no_args_is_help=True)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The gateway's YAML file; the packaged one otherwise.")
]
Expires = Annotated[str | None, typer.Option(help="Last day in UTC (2027-06-30), or from now on (90d).")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The 12 characters after `hr-`.")]
_LABEL_LENGTH = 100
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LAST_MOMENT = end_of_day("9999-12-31") - 1


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose key it is: a tenant of the YAML file.")],
    label: Annotated[str, typer.Option(help="What it is for; shown by `list`.")] = "",
    expires: Expires = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Store nothing: print the line to paste into the YAML.")] = False,
    config: ConfigFile = None,
) -> None:
    """Issue a key and print it, once."""
    now = time.time()
    with _plain_errors():
        settings = _load(config)
        _check_tenant(settings, tenant)
        if len(label) > _LABEL_LENGTH or not label.isprintable():
            _stop(f"--label: at most {_LABEL_LENGTH} printable characters on one line")
        ends = _parse_expires(expires, now)
        if yaml:
            _create_yaml(settings, tenant, label, ends)
            return
        key = _store(settings).create(tenant, label, now=now, expires_at=ends)
    _say(f"Key {key.id} for tenant {tenant}{f', until {utc(ends)}' if ends else ''}. It is shown this once:")
    typer.echo(key.plaintext)


@app.command("list")
def list_keys(
    json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False, config: ConfigFile = None
) -> None:
    """Show every key: issued ones and those kept in the YAML file."""
    with _plain_errors():
        settings = _load(config)
        keys = listed(settings, _store(settings).read_all(), time.time())
    if json:
        typer.echo(as_json(keys))
    else:
        show_table(keys)


@app.command()
def revoke(key_id: KeyId, config: ConfigFile = None) -> None:
    """End a key at once, on every gateway within a second."""
    with _plain_errors():
        settings = _load(config)
        _check_issued(settings, key_id)
        _store(settings).revoke(key_id, now=time.time())
    _say(f"Key {key_id} is revoked.")


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[str, typer.Option(help="How long the old key still works.")] = "24h",
    expires: Annotated[str | None, typer.Option(help="The new key's end; the old one's otherwise.")] = None,
    config: ConfigFile = None,
) -> None:
    """Issue a key in another's place and print it, once."""
    now = time.time()
    with _plain_errors():
        settings = _load(config)
        _check_issued(settings, key_id)
        ends = _parse_expires(expires, now)
        seconds = _parse_overlap(overlap, now)
        key = _store(settings).rotate(key_id, seconds, now=now, expires_at=ends)
    _say(f"Key {key.id} takes the place of {key_id}, which ends by {utc(now + seconds)}. It is shown this once:")
    typer.echo(key.plaintext)


def _create_yaml(settings: Config, tenant: str, label: str, ends: float | None) -> None:
    key = new_key()
    # The file knows days only: a key that ends within a day is good until that day is over.
    until = f', expires: "{utc(ends - 1)[:10]}"' if ends else ""
    line = f'- {{id: "{key.id}", hash: "{digest(load_pepper(settings), key.plaintext).hex()}"{until}}}'
    _say(f"Paste this under `keys:` of tenant {tenant}:\n  {line}{f'  # {label}' if label else ''}")
    if path := pepper_path(settings):
        _say(f"It works where the pepper is the one in {path}; set auth.pepper to share it between machines.")
    _say("The key itself, shown this once:")
    typer.echo(key.plaintext)


def _load(path: Path | None) -> Config:
    return load(path or default_path())


def _store(settings: Config) -> KeyStore:
    return KeyStore(settings.state.database, load_pepper(settings))


def _check_tenant(settings: Config, tenant: str) -> None:
    names = [known.name for known in settings.tenants]
    if tenant not in names:
        close = get_close_matches(tenant, names, n=1)
        _stop(f"no tenant {tenant!r} in the configuration" + (f"; did you mean {close[0]!r}?" if close else ""))


def _check_issued(settings: Config, key_id: str) -> None:
    for tenant in settings.tenants:
        if any(key.id == key_id for key in tenant.keys):
            _stop(f"key {key_id} is kept in the YAML file: change it there, under tenant {tenant.name}")


def _parse_expires(text: str | None, now: float) -> float | None:
    """Unix seconds of `2027-06-30` (the end of that day, UTC) or of `90d` from now."""
    if text is None:
        return None
    try:
        ends = end_of_day(text) if _DAY.fullmatch(text) else now + parse_duration(text)
    except ValueError:
        _stop(f"--expires: expected a day such as 2027-06-30 or a duration such as 90d, got {text!r}")
    if ends <= now:
        _stop(f"--expires: {text} is over already")
    if ends > _LAST_MOMENT:
        _stop(f"--expires: {text} ends after the year 9999; leave it out for a key without an end")
    return ends


def _parse_overlap(text: str, now: float) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        _stop(f"--overlap: {error}")
    if now + seconds > _LAST_MOMENT:
        _stop(f"--overlap: {text} ends after the year 9999")
    return seconds


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except (ConfigError, KeyConfigError) as error:
        _stop(str(error))
    except KeysError as error:
        _stop(str(error), status=1)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _stop(sentence: str, *, status: int = 2) -> NoReturn:
    _say(f"error: {sentence}")
    raise typer.Exit(status)
