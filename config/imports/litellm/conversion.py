"""LiteLLM's whole file → a draft of ours, and what has no equivalent."""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from config.document import Document
from config.imports.draft import Blueprint
from config.imports.hosting import Secrets
from config.imports.litellm.deployments import Deployment, read
from config.imports.litellm.models import DeploymentGroup
from config.imports.litellm.reasons import explain
from config.imports.litellm.routing import Routing, strategy
from config.imports.litellm.settings import GatewaySettings
from config.imports.survey import ForeignValue, Survey
from config.problem import ConfigError, Problem
from config.schema.text import Glob

_names: TypeAdapter[str] = TypeAdapter(Glob)


def convert(doc: Document) -> tuple[Blueprint, list[Problem]]:
    """The draft, and each value without an equivalent. Raises `ConfigError` for a file that is not LiteLLM's."""
    if doc.problems:
        raise ConfigError(doc.problems)
    survey = Survey(doc)
    root = survey.root
    if not tuple(root["model_list"]):
        raise ConfigError([Problem(doc.file, None, "model_list", "has no models: this is no configuration of LiteLLM")])
    draft = Blueprint(f"LiteLLM's {doc.file.rpartition('/')[2]}")
    secrets = Secrets(draft)
    router = [root["router_settings"], root["litellm_settings"]]
    models = _models(_deployments(root, draft, secrets), router, draft)
    settings = GatewaySettings(root, draft, secrets)
    routing = Routing(models, router, settings.cache(), draft)
    routing.write()
    settings.write()
    explain(root)
    return draft, survey.left()


def _deployments(root: ForeignValue, draft: Blueprint, secrets: Secrets) -> list[Deployment]:
    credentials: dict[str, ForeignValue] = {}
    for part in root["credential_list"]:
        if (name := part["credential_name"].text()) is not None:
            credentials[name] = part
    made: list[Deployment] = []
    for part in root["model_list"]:
        try:
            _names.validate_python(part["model_name"].value)
        except ValidationError:
            part.leave("is not imported: a model's name has up to 128 letters, digits and . _ : / - @ + ( )")
            continue
        if (deployment := read(part, credentials, draft, secrets)) is not None:
            made.append(deployment)
    return made


def _models(
    deployments: Sequence[Deployment], router: list[ForeignValue], draft: Blueprint
) -> dict[str, DeploymentGroup]:
    """The models by name: exact names before wildcards, and longer wildcards before shorter ones."""
    balance = strategy(router)
    by_name: dict[str, list[Deployment]] = {}
    for deployment in deployments:
        by_name.setdefault(deployment.name, []).append(deployment)
    models = [DeploymentGroup(name, group, draft, balance) for name, group in by_name.items()]
    ordered = sorted(models, key=lambda model: (model.is_family, -len(model.name) if model.is_family else 0))
    return {model.name: model for model in ordered}
