"""A real Postgres, on a Unix socket in a folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from tests.support.debian import binary

_FOLDERS = "/usr/lib/postgresql/*/bin"
# Durability is off: no data outlives the run.
_SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=60")


class Postgres:
    """Runs as another user where we are root, which it refuses to be."""

    def __init__(self) -> None:
        self._postgres = binary("postgres", "postgresql", _FOLDERS)
        self._user = _server_user()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=_memory()))
        if self._user is not None:
            os.chown(self._folder, *self._user)
        self.run(
            "initdb",
            "-D",
            str(self._folder / "data"),
            "-U",
            "headrace",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--no-locale",
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0

    def start(self) -> None:
        """Until it answers."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        command = [self._postgres, "-D", str(self._folder / "data"), "-k", str(self._folder), *settings]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **self._as_user())
        give_up = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                dead = self._process.poll() is not None
                if dead or time.monotonic() > give_up:
                    raise AssertionError((self._folder / "log").read_text()) from None
                time.sleep(0.05)

    def crash(self) -> None:
        """Every connection breaks, at once; committed data is there after the next start."""
        self._end(signal.SIGQUIT)

    def freeze(self) -> None:
        """Stop all of its processes: it accepts connections, and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self._process is not None
        processes = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        for process in processes:
            process.send_signal(number)

    def copy_standby(self) -> None:
        """Remember all that is committed, as a standby that receives nothing more. Every connection breaks."""
        self.crash()
        shutil.rmtree(self._folder / "standby", ignore_errors=True)
        subprocess.run(["cp", "-a", "data", "standby"], cwd=self._folder, check=True)
        self.start()

    def fail_over(self) -> None:
        """End, and go on as the standby: what was committed since is lost."""
        self.crash()
        shutil.rmtree(self._folder / "data")
        (self._folder / "standby").rename(self._folder / "data")
        self.start()

    def place(self, name: str) -> str:
        """The path of a file that its programs can write."""
        return str(self._folder / name)

    def database(self) -> str:
        """The URL of an empty database."""
        self._made += 1
        name = f"test{self._made}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return f"postgresql://headrace@/{name}?host={self._folder}"

    def execute(self, url: str, statement: str) -> None:
        """Run a statement as the owner of the database."""
        with self.connect(url.partition("@/")[2].partition("?")[0]) as connection:
            connection.execute(statement.encode())

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def connect(self, name: str = "postgres") -> psycopg.Connection[Any]:
        """A connection past the product."""
        return psycopg.connect(host=str(self._folder), dbname=name, user="headrace", autocommit=True)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of Postgres, such as `pg_dump`."""
        command = [binary(program, "postgresql", _FOLDERS), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=300, check=False, **self._as_user())
        assert done.returncode == 0, done.stderr.decode()

    def _as_user(self) -> dict[str, Any]:
        other = {} if self._user is None else {"user": self._user[0], "group": self._user[1], "extra_groups": []}
        return {**other, "cwd": self._folder}


def _memory() -> str | None:
    """A file system in memory, if there is one: each database is a copy of seven megabytes."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _server_user() -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    return users.get("postgres", users["nobody"])
