"""What a person writes: the one YAML file, read strictly, and every mistake told by its line.

schema.py        the whole of the file: sections, fields, defaults (pool.py, route.py, queue.py …: its larger parts)
section.py       the base of every section: frozen, closed
protocols/       what a pool's endpoints speak, a section each
runtimes/        servers that the gateway starts itself, a section each
units.py         quantities: 250ms, 10MiB, 600/min, 20%, 127.0.0.1:8080
text.py          texts with a shape: names, globs, URLs, secrets
globs.py         how two patterns relate
loader.py        path → Config, or every problem at once
document.py      YAML → plain data with line numbers
place.py         a place in the file, and what the schema has there
external.py      ${ENV}, file: secrets, PEM files
sentences.py     the schema's complaints in plain words
node.py          a cursor over data of any shape, for the two checks between sections:
references.py      names that exist, once, and are used
combinations.py    fields that do not go together (credentials.py: ways in; matching.py: routes that can never be
                       reached; backlog.py: queues)
problem.py       one problem, and the error that holds them all
watcher.py       follows the file while the gateway runs
jsonschema.py    the schema for editors
headrace.yaml    the default, which runs as it is; examples/: others to start from
"""

from pathlib import Path


def default_path() -> Path:
    """The packaged default configuration."""
    return Path(__file__).with_name("headrace.yaml")
