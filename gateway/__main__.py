"""The console script."""

import gc


def main() -> None:
    """Run a command.

    The modules of the commands are imported without garbage collection, which takes a seventh of the time of the
    imports and frees nothing.
    """
    gc.disable()
    from gateway.process.commands import app

    gc.freeze()
    gc.enable()
    app(prog_name="headrace")


if __name__ == "__main__":
    main()
