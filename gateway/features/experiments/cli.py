"""`headrace experiment`: lists experiments, shows their effects, and pauses, continues or stops them.

The commands work on the state database: every running gateway follows within seconds.
"""

import json as json_text
from typing import Annotated, Any

import typer

from gateway.auth.terminal import ConfigFile, print_status
from gateway.features.rollouts.terminal import give_order, one_view, stored_series, stored_views
from policies.experiments.decide import ExperimentVerb
from policies.experiments.progress import ExperimentProgress

_HEAD = ("arm", "assigned", "values", "mean", "effect", "interval", "e better", "e worse")
app = typer.Typer(name="experiment", help="List, show, pause, continue and stop experiments.", no_args_is_help=True)

ExperimentName = Annotated[str, typer.Argument(metavar="NAME", help="The experiment's `name` in the YAML file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Series = Annotated[bool, typer.Option("--series", help="Print the time series as JSON.")]


@app.command("list")
def list_experiments(json: Json = False, config: ConfigFile = None) -> None:
    """List every experiment: status, winner, shares of the arms."""
    shown = stored_views(config, "experiment")
    if json:
        typer.echo(json_text.dumps(shown, indent=2))
        return
    for view in shown:
        typer.echo(_title(view))
    if not shown:
        print_status("The file has no experiment.")


@app.command()
def show(name: ExperimentName, json: Json = False, series: Series = False, config: ConfigFile = None) -> None:
    """Show one experiment: a table of its arms for each metric, its guards and its sample ratios."""
    view = one_view(config, "experiment", name)
    if series:
        typer.echo(json_text.dumps(stored_series(config, name), indent=2))
    else:
        typer.echo(json_text.dumps(view, indent=2) if json else "\n".join(_lines(view)))


@app.command()
def pause(name: ExperimentName, config: ConfigFile = None) -> None:
    """Decide nothing. Values still count, and a guard still stops its arm."""
    _order(name, "pause", config)


@app.command()
def on(name: ExperimentName, config: ConfigFile = None) -> None:
    """Continue a paused experiment, or accept a wrong sample ratio. One that is stopped starts anew."""
    _order(name, "on", config)


@app.command()
def stop(name: ExperimentName, config: ConfigFile = None) -> None:
    """Give all new requests to the control."""
    _order(name, "stop", config)


def _order(name: str, verb: ExperimentVerb, path: ConfigFile) -> None:
    progress = give_order(path, "experiment", name, verb)
    assert isinstance(progress, ExperimentProgress)
    print_status(f"{name}: {progress.status}. Running gateways follow within seconds.")


def _title(view: dict[str, Any]) -> str:
    reason = f" ({view['reason']})" if view["reason"] else ""
    if "arms" not in view:
        return f"{view['name']}: {view['status']}{reason}"
    winner = f", winner {view['winner']}" if view["winner"] else ""
    shares = ", ".join(f"{arm['name']} {arm['share']:.3g}" for arm in view["arms"])
    return f"{view['name']}: {view['status']}{reason}{winner}; {shares}"


def _lines(view: dict[str, Any]) -> list[str]:
    """An experiment as text."""
    lines = [_title(view)]
    if "arms" not in view:
        return lines
    lines.append(
        f"  sample ratio: e {view['sample_ratio']['e_value']:.3g}; "
        f"of values: e {view['feedback_ratio']['e_value']:.3g}; 1000 suspends"
    )
    for name, metric in view["metrics"].items():
        decides = f", decides at e {view['needed']:.3g}" if name == view["metric"] else ""
        lines.append(f"  {name} ({metric['better']} is better{decides})")
        rows: list[tuple[str, ...]] = [_HEAD]
        rows += [_row(arm, values) for arm, values in zip(view["arms"], metric["arms"], strict=True)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines += [
            "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
    lines += [
        f"  guard {guard['event']} of {guard['arm']}: e {guard['e_value']:.3g}, stops at {guard['needed']:.3g}; "
        f"events {guard['events']['control']} and {guard['events']['arm']}"
        for guard in view["guards"]
    ]
    return lines


def _row(arm: dict[str, Any], values: dict[str, Any]) -> tuple[str, ...]:
    mean = "" if values["mean"] is None else f"{values['mean']:.4g}"
    name = f"{arm['name']} (stopped: {arm['stopped_by']})" if arm["stopped_by"] else arm["name"]
    row = (name, str(arm["assigned"]), str(values["samples"]), mean)
    if "effect" not in values:
        return (*row, "", "", "", "")
    low, high = values["interval"]
    e = values["e_value"]
    return (*row, f"{values['effect']:+.4g}", f"{low:+.4g} to {high:+.4g}", f"{e['better']:.3g}", f"{e['worse']:.3g}")
