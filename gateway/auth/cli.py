"""`headrace keys`: issue, list, block, revoke and rotate API keys.

Standard output holds a new key's plaintext alone, or the list; everything else goes to standard error.
"""

import json as json_text
import time
from typing import Annotated, Any

import typer

from config.schema.config import Config
from config.schema.identity import GrantConfig
from gateway.auth.errors import WrongGrant
from gateway.auth.grants import check_label, check_tenant, parse_end, parse_grant, parse_overlap
from gateway.auth.keys import digest, new_key
from gateway.auth.listing import listed, show_json, show_table, utc
from gateway.auth.pepper import load_pepper, pepper_path
from gateway.auth.teams.limits import check_team_of_key
from gateway.auth.terminal import ConfigFile, open_store, plain_errors, print_status, settings_of, stop, terminal_user

app = typer.Typer(name="keys", help="Issue, list, block, revoke and rotate API keys.", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The 12 characters after `hr-`.")]
Names = list[str]


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="Tenant of the key, as in the YAML file.")],
    label: Annotated[str, typer.Option(help="Note on the purpose of the key, shown by `list`.")] = "",
    expires: Annotated[str | None, typer.Option(help="Last day in UTC (2027-06-30), or a duration (90d).")] = None,
    role: Annotated[str, typer.Option(help="user, tenant-admin or operator.")] = "user",
    models: Annotated[
        Names | None, typer.Option(help="Restrict the key to models that match this glob. May be repeated.")
    ] = None,
    fronts: Annotated[
        Names | None, typer.Option(help="Restrict the key to this operation, such as chat. May be repeated.")
    ] = None,
    routes: Annotated[
        Names | None, typer.Option(help="Restrict the key to routes of this name. May be repeated.")
    ] = None,
    labels: Annotated[Names | None, typer.Option(help="NAME=VALUE for routes to match. May be repeated.")] = None,
    team: Annotated[str | None, typer.Option(help="Team of the tenant, whose limits apply too.")] = None,
    aws: Annotated[
        bool, typer.Option("--aws", help="Print its access key for clients of AWS too, in two more lines.")
    ] = False,
    yaml: Annotated[bool, typer.Option("--yaml", help="Store nothing; print an entry for the YAML file.")] = False,
    config: ConfigFile = None,
) -> None:
    """Issue a key and print it, once."""
    now = time.time()
    with plain_errors():
        settings = settings_of(config)
        owner = check_tenant(settings, tenant)
        check_label(label)
        ends = parse_end(expires, now)
        written = _written(role, {"models": models, "fronts": fronts, "routes": routes}, labels)
        grant = parse_grant(settings, owner, written if team is None else written | {"team": team})
        if grant.team is not None:
            check_team_of_key(owner, grant.team, () if yaml else open_store(settings).teams.read_all(tenant))
        if yaml:
            key_id = _create_yaml(settings, tenant, label, ends, grant)
            if aws:
                _print_aws(settings, key_id)
            return
        store = open_store(settings)
        most = settings.auth.keys_per_tenant
        key = store.create(tenant, label, by=terminal_user(), now=now, expires_at=ends, grant=grant, most=most)
    print_status(f"Key {key.id} for tenant {tenant}{f', until {utc(ends)}' if ends else ''}. It is shown only once:")
    typer.echo(key.plaintext)
    if aws:
        _print_aws(settings, key.id)


@app.command("aws")
def aws_key(key_id: KeyId, config: ConfigFile = None) -> None:
    """Print the access key for clients of AWS that belongs to a key, as variables of the environment."""
    with plain_errors():
        settings = settings_of(config)
        written = any(key.id == key_id for tenant in settings.tenants for key in tenant.keys)
        if not written and not any(key.id == key_id for key in open_store(settings).read_all()):
            stop(f"there is no key {key_id}: `headrace keys list` shows them")
    _print_aws(settings, key_id)


@app.command("list")
def list_keys(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only the keys of this tenant.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many issued keys, the newest.")] = None,
    config: ConfigFile = None,
) -> None:
    """List every key, issued or stored in the YAML file."""
    with plain_errors():
        settings = settings_of(config)
        store = open_store(settings)
        issued = store.walk(tenant) if limit is None else store.read_all(tenant, newest=limit)
        keys = (key for key in listed(settings, issued, time.time()) if tenant in (None, key.tenant))
        (show_json if json else show_table)(keys)


@app.command()
def revoke(key_id: KeyId, config: ConfigFile = None) -> None:
    """Revoke a key. Every running gateway refuses it within a second."""
    with plain_errors():
        settings = settings_of(config)
        _check_issued(settings, key_id)
        open_store(settings).revoke(key_id, by=terminal_user(), now=time.time())
    print_status(f"Key {key_id} is revoked.")


@app.command()
def block(key_id: KeyId, config: ConfigFile = None) -> None:
    """Refuse a key, and all keys that it replaced or that replaced it, until `unblock`."""
    with plain_errors():
        settings = settings_of(config)
        _check_issued(settings, key_id)
        ids = open_store(settings).block(key_id, by=terminal_user(), now=time.time())
    print_status(f"Blocked: {', '.join(ids)}.")


@app.command()
def unblock(key_id: KeyId, config: ConfigFile = None) -> None:
    """Accept a blocked key again, and all keys that it replaced or that replaced it."""
    with plain_errors():
        settings = settings_of(config)
        _check_issued(settings, key_id)
        ids = open_store(settings).unblock(key_id, by=terminal_user(), now=time.time())
    print_status(f"No longer blocked: {', '.join(ids)}.")


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[str, typer.Option(help="How long the old key stays valid.")] = "24h",
    expires: Annotated[
        str | None, typer.Option(help="Expiry of the new key. That of the old key when not given.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Replace a key: print a new one, once, and expire the old one."""
    now = time.time()
    with plain_errors():
        settings = settings_of(config)
        _check_issued(settings, key_id)
        ends = parse_end(expires, now)
        seconds = parse_overlap(overlap, now)
        rotate, most = open_store(settings).rotate, settings.auth.keys_per_tenant
        key = rotate(key_id, seconds, by=terminal_user(), now=now, expires_at=ends, most=most)
    print_status(f"Key {key.id} replaces {key_id}, which expires at {utc(now + seconds)}. It is shown only once:")
    typer.echo(key.plaintext)


def _create_yaml(settings: Config, tenant: str, label: str, ends: float | None, grant: GrantConfig) -> str:
    key = new_key()
    # The file knows days only: a key that ends within a day is good until that day is over.
    until = f', expires: "{utc(ends - 1)[:10]}"' if ends else ""
    given = grant.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    more = "".join(f", {name}: {json_text.dumps(value)}" for name, value in given.items())  # JSON is YAML too
    line = f'- {{id: "{key.id}", hash: "{digest(load_pepper(settings), key.plaintext).hex()}"{until}{more}}}'
    print_status(f"Paste this under `keys:` of tenant {tenant}:\n  {line}{f'  # {label}' if label else ''}")
    if path := pepper_path(settings):
        print_status(f"It is valid only with the pepper in {path}; set auth.pepper to share it between machines.")
    print_status("The key itself, shown only once:")
    typer.echo(key.plaintext)
    return key.id


def _print_aws(settings: Config, key_id: str) -> None:
    from gateway.auth.aws import lines  # AWS's signatures are not needed before

    typer.echo(lines(load_pepper(settings), key_id))


def _written(role: str, scopes: dict[str, Names | None], labels: Names | None) -> dict[str, Any]:
    """The value that a YAML file would contain."""
    named = {kind: names for kind, names in scopes.items() if names}
    pairs = [pair.partition("=") for pair in labels or ()]
    if wrong := next((name for name, equals, _ in pairs if not equals), None):
        raise WrongGrant("labels", f"expected NAME=VALUE, got {wrong!r}")
    return {
        "role": role,
        **({"scopes": named} if named else {}),
        "labels": {name: value for name, _, value in pairs},
    }


def _check_issued(settings: Config, key_id: str) -> None:
    for tenant in settings.tenants:
        if any(key.id == key_id for key in tenant.keys):
            stop(f"key {key_id} is defined in the YAML file: change it there, under tenant {tenant.name}")
