"""The parts that `headrace rollout` and `headrace experiment` share: they read and write the state database."""

from typing import Any

from gateway.auth.pepper import load_pepper
from gateway.auth.terminal import ConfigFile, plain_errors, settings_of, stop, terminal_user
from gateway.features.rollouts.operators import views
from gateway.features.rollouts.planned import Progress, Verb, planned_of
from gateway.features.rollouts.store import RolloutStore
from policies.rollouts.decide import OrderRefused


def stored_views(path: ConfigFile, kind: str) -> list[dict[str, Any]]:
    """The rollouts or the experiments of a file, as stored."""
    with plain_errors():
        settings = settings_of(path)
        store = RolloutStore(settings.state.database, load_pepper(settings))
        try:
            return views(planned_of(settings), store.read(), kind)
        finally:
            store.close()


def stored_series(path: ConfigFile, name: str) -> list[dict[str, Any]]:
    """The time series of an experiment, as stored."""
    with plain_errors():
        settings = settings_of(path)
        store = RolloutStore(settings.state.database, load_pepper(settings))
        try:
            progress = store.read().get(name)
            return [] if progress is None else store.series(name, progress.generation)
        finally:
            store.close()


def one_view(path: ConfigFile, kind: str, name: str) -> dict[str, Any]:
    """One of them. Stops the command if there is none."""
    view = next((view for view in stored_views(path, kind) if view["name"] == name), None)
    if view is None:
        stop(f"there is no {kind} {name!r}", status=1)
    return view


def give_order(path: ConfigFile, kind: str, name: str, verb: Verb) -> Progress:
    """Order a rollout or an experiment: every running gateway follows within seconds."""
    with plain_errors():
        settings = settings_of(path)
        plans = planned_of(settings)
        plan = next((plan for plan in plans if (plan.config.kind, plan.config.name) == (kind, name)), None)
        if plan is None:
            stop(f"the file has no {kind} {name!r}", status=1)
        store = RolloutStore(settings.state.database, load_pepper(settings))
        try:
            return store.order(plan, verb, terminal_user())
        except OrderRefused as error:
            stop(str(error), status=1)
        finally:
            store.close()
