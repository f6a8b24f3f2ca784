"""Output and errors that the commands over the state database share.

Standard output has the results for scripts; everything else goes to standard error. Exit status 2 is a wrong argument
or configuration, 1 a change that could not be made.
"""

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from config import default_path
from config.loader import ConfigError, load
from config.schema.config import Config
from gateway.auth.audit import Actor
from gateway.auth.errors import WrongGrant
from gateway.auth.pepper import load_pepper
from gateway.auth.store import KeyStore
from gateway.state.errors import StateConfigError, StateError

ADMIN_KEY = "HEADRACE_ADMIN_KEY"
"""The environment variable with the key for the admin listener."""
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file of the gateway. The bundled default when not given.")
]


def settings_of(path: Path | None) -> Config:
    """Load the configuration file. Raises `ConfigError`."""
    return load(path or default_path())


def open_store(settings: Config) -> KeyStore:
    """The state database that the file names. Raises `StateError`."""
    return KeyStore(settings.state.database, load_pepper(settings))


def admin_url(settings: Config) -> str:
    """The admin listener that the file names."""
    listen = settings.listen
    return f"{'https' if listen.admin_tls else 'http'}://{listen.admin}"


def terminal_user() -> Actor:
    """The user of this machine, as the audit log names it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return Actor(f"cli:{user}@{socket.gethostname()}")


@contextmanager
def plain_errors() -> Iterator[None]:
    """The message and the exit status of every expected error."""
    try:
        yield
    except (ConfigError, StateConfigError) as error:
        stop(str(error))
    except WrongGrant as error:
        option = error.field.removeprefix("scopes.").partition(".")[0]
        stop(f"--{option}: {error.reason}" if option else error.reason)
    except StateError as error:
        stop(str(error), status=1)


def print_status(text: str) -> None:
    """Print a message for people, on standard error."""
    typer.echo(text, err=True)


def stop(sentence: str, *, status: int = 2) -> NoReturn:
    """Print the reason and exit."""
    print_status(f"error: {sentence}")
    raise typer.Exit(status)
