"""The configuration: a strict reader of the YAML file, which reports every mistake with its line.

schema/          the file: sections, fields, defaults, and the types of quantities and texts; protocols, runtimes
catalogue/       the facts of hosted models by name
imports/         configurations of other servers
checks/          rules between sections, each with the line of the mistake
expressions/     the typed expressions in conditions of pipelines
loader.py        path → Config, or every problem at once; a configuration for another process of the gateway
document.py      YAML → plain data with line numbers, and a cursor over it for the checks
addresses.py     public addresses
stores.py        the addresses of model repositories
patterns.py      regular expressions of guards, each with its longest match
answer_schemas.py  JSON Schemas of guards: their patterns and their draft
code.py          the pool of the Python files that pipelines call
extras.py        the optional packages that a configuration needs (installing.py: how to install them)
graph.py         a graph of named steps: predecessors, cycles, needed steps
place.py         a place in the file, and the schema at that place
external.py      ${ENV}, file: secrets, PEM files, Python files
sentences.py     errors of the schema in plain English
problem.py       one problem, and the error with all problems
cases.py         tests of a policy
watcher.py       watches the file while the gateway runs (waiting.py: looks in threads that seldom wake the loop)
jsonschema.py    JSON Schema for editors, with the docstrings under the fields
reference.py     docs/configuration.md, from the schema
headrace.yaml    the default configuration, ready to run; examples/: templates
"""

from pathlib import Path


def default_path() -> Path:
    """The packaged default configuration."""
    return Path(__file__).with_name("headrace.yaml")
