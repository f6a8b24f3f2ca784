"""The one sentence that names the command which installs an extra.

No index has this distribution, so no message names it there: whoever registers the name would run code at its readers.
"""


def installing(*extras: str) -> str:
    """How to install extras, from a checkout or from a wheel: ``run `pip install …` ``."""
    names = ",".join(extras)
    return (
        f"run `pip install --editable '.[{names}]'` in a checkout of Headrace, "
        f"or `pip install './WHEEL[{names}]'` with the file that `make wheel` builds"
    )
