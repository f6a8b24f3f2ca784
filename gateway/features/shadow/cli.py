"""`headrace shadow`: lists shadows with their verdicts, and shows the evidence of one."""

import json as json_text
from typing import Annotated, Any

import typer

from gateway.auth.pepper import load_pepper
from gateway.auth.terminal import ConfigFile, plain_errors, print_status, settings_of, stop
from gateway.features.shadow.operators import sampled_view, shadow_views
from gateway.features.shadow.store import ShadowStore
from policies.shadowing.planned import planned

app = typer.Typer(name="shadow", help="List shadows and their verdicts.", no_args_is_help=True)

ShadowName = Annotated[str, typer.Argument(metavar="NAME", help="The shadow's `name`, or that of its target.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_shadows(json: Json = False, config: ConfigFile = None) -> None:
    """List every shadow: verdict, compared and differing copies."""
    shown = _views(config)
    if json:
        typer.echo(json_text.dumps(shown, indent=2))
        return
    for view in shown:
        typer.echo(f"{view['name']}: {view['verdict']}, {view['differing']} of {view['compared']} copies differ")
    if not shown:
        print_status("The file has no shadow.")


@app.command()
def show(name: ShadowName, json: Json = False, config: ConfigFile = None) -> None:
    """Show one shadow with its counts and its evidence."""
    view = next(iter(_views(config, name)), None)
    if view is None:
        stop(f"the file has no shadow {name!r}", status=1)
    typer.echo(json_text.dumps(view, indent=2) if json else "\n".join(_lines(view)))


def _views(path: ConfigFile, name: str | None = None) -> list[dict[str, Any]]:
    """All shadows, or one with its samples."""
    with plain_errors():
        settings = settings_of(path)
        plans = [plan for plan in planned(settings) if name in (None, plan.name)]
        store = ShadowStore(settings.state.database, load_pepper(settings))
        try:
            views = shadow_views(plans, store.read())
            if name is None:
                return views
            return [sampled_view(view, plan, store) for view, plan in zip(views, plans, strict=True)]
        finally:
            store.close()


def _lines(view: dict[str, Any]) -> list[str]:
    """A shadow as text."""
    low, high = view["excess"]
    lines = [
        f"{view['name']}: {view['verdict']}",
        f"  copies of {view['model']} to {view['to']}: {view['compared']} compared, {view['differing']} differ",
    ]
    if view["noise"]:
        pairs = view["discordant"]
        lines.append(
            f"  second answers of the primary: {view['repeated']}; only the shadow differs in {pairs['shadow']}, only "
            f"the second answer in {pairs['repeat']}, both in {view['both_differ']}"
        )
    lines.append(f"  evidence: e {view['e_value']:.3g}, certain at {view['needed']:.3g}")
    lines.append(f"  differing answers beyond the noise: {max(low, 0):.2%} to {max(high, 0):.2%}")
    lines += [f"  {line}" for line in _times(view["times"])]
    lines += [f"  {field}: {count}" for field, count in view["fields"].items()]
    for sample in view["samples"]:
        differing = "; ".join(f"{field}: {text}" for field, text in sample["differences"].items())
        lines.append(f"  request {sample['id']}: {differing}")
        lines += [f"    {part}: {sample[part]}" for part in ("request", "primary", "shadow")]
    return lines


def _times(times: dict[str, Any]) -> list[str]:
    """The quantiles of both answers' times, a line for each quantile."""
    return [
        f"{label.replace('_', ' ')} {quantile}: "
        + ", ".join(f"{arm} {arms[arm][quantile]['seconds'] * 1e3:.3g} ms" for arm in arms)
        for label, arms in times.items()
        for quantile in arms["primary"]
    ]
