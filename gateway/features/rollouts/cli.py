"""`headrace rollout`: lists rollouts, shows their evidence, and pauses, continues or takes them back.

The commands work on the state database: every running gateway follows within seconds.
"""

import json as json_text
from typing import Annotated, Any

import typer

from gateway.auth.terminal import ConfigFile, print_status
from gateway.features.rollouts.terminal import give_order, one_view, stored_views
from policies.rollouts.decide import OperatorVerb
from policies.rollouts.progress import RolloutProgress

app = typer.Typer(name="rollout", help="List, show, pause, continue and take back rollouts.", no_args_is_help=True)

RolloutName = Annotated[str, typer.Argument(metavar="NAME", help="The rollout's `name` in the YAML file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_rollouts(json: Json = False, config: ConfigFile = None) -> None:
    """List every rollout: status, step, share of the new arm."""
    shown = stored_views(config, "rollout")
    if json:
        typer.echo(json_text.dumps(shown, indent=2))
        return
    for view in shown:
        reason = f" ({view['reason']})" if view["reason"] else ""
        step = f", step {view['step'] + 1} of {len(view['steps'])}" if "steps" in view else ""
        typer.echo(f"{view['name']}: {view['status']}{reason}{step}, weight {view['weight']:.4g}")
    if not shown:
        print_status("The file has no rollout.")


@app.command()
def show(name: RolloutName, json: Json = False, config: ConfigFile = None) -> None:
    """Show one rollout with its counts, its evidence and its intervals."""
    view = one_view(config, "rollout", name)
    typer.echo(json_text.dumps(view, indent=2) if json else "\n".join(_lines(view)))


@app.command()
def pause(name: RolloutName, config: ConfigFile = None) -> None:
    """Hold the present share. Events still count, and an alarm still takes the rollout back."""
    _order(name, "pause", config)


@app.command()
def on(name: RolloutName, config: ConfigFile = None) -> None:
    """Continue a paused rollout; otherwise go to the next step. A rollout that went back restarts."""
    _order(name, "on", config)


@app.command()
def back(name: RolloutName, config: ConfigFile = None) -> None:
    """Send all new requests to the old arm. Streams in progress finish on their arm."""
    _order(name, "back", config)


def _order(name: str, verb: OperatorVerb, path: ConfigFile) -> None:
    progress = give_order(path, "rollout", name, verb)
    assert isinstance(progress, RolloutProgress)
    print_status(f"{name}: {progress.status}, weight {progress.share:.4g}. Running gateways follow within seconds.")


def _lines(view: dict[str, Any]) -> list[str]:
    """A rollout as text."""
    lines = [f"{view['name']}: {view['status']}{' (' + view['reason'] + ')' if view['reason'] else ''}"]
    if "steps" not in view:
        return lines
    lines.append(f"  step {view['step'] + 1} of {len(view['steps'])}, weight {view['weight']:.4g}")
    if view["back_for_seconds"] is not None:
        lines.append(f"  `back` is possible for {view['back_for_seconds']:.0f} s")
    lines.append(f"  requests: {view['requests']['from']} of {view['from']}, {view['requests']['to']} of {view['to']}")
    lines.append(f"  sample ratio: e {view['sample_ratio']['e_value']:.3g}, suspends at 1000")
    lines += [
        f"  back if {alarm['event']} above {alarm['above']:g}x: e {alarm['e_value']:.3g}, needs {alarm['needed']:.3g}; "
        + _counts(alarm)
        for alarm in view["back_if"]
    ]
    for proof in view["on_if"]:
        bounds = [f"below {proof['below']:g}x (e {proof['e_value']:.3g})"] if proof["below"] is not None else []
        if proof["at_most"] is not None:
            bounds.append(f"at most {proof['at_most']:.3%} (is at most {proof['rate_at_most']:.3%})")
        state = "proven" if proof["proven"] else "not proven"
        lines.append(f"  on if {proof['event']} {' or '.join(bounds)}: {state}; {_counts(proof)}")
    differ = view["first_byte"].pop("differ", {})
    for arm, times in view["first_byte"].items():
        quantiles = ", ".join(f"{name} {times[name]['seconds']:.3g} s" for name in times)
        lines.append(f"  first byte of {view[arm]}: {quantiles}")
    if differ:
        evidence = ", ".join(f"{name} e {differ[name]['e_value']:.3g}" for name in differ)
        lines.append(f"  first bytes differ: {evidence}")
    return lines


def _counts(condition: dict[str, Any]) -> str:
    low, high = condition["ratio"]
    ratio = f"{low:.3g} to {high:.3g}" if high < 1e6 else f"at least {low:.3g}"
    return f"events {condition['events']['from']} and {condition['events']['to']}, ratio {ratio}"
