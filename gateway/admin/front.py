"""The admin API on its own listener: health, metrics, state, pools, tenants, explain and model orders; the console."""

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.batches import AdminBatches
from gateway.admin.api.body import bound_bodies
from gateway.admin.api.comparisons import ComparisonsFront
from gateway.admin.api.configuration import ConfigurationFront
from gateway.admin.api.explain import Explain, PipelinesFront
from gateway.admin.api.guard import AdminGuard
from gateway.admin.api.guards import GuardsFront
from gateway.admin.api.models import ModelsFront
from gateway.admin.api.playground import PlaygroundFront
from gateway.admin.api.pools import Orders, Pools
from gateway.admin.api.requests import RequestsFront
from gateway.admin.api.sessions import SessionAdmission
from gateway.admin.api.shadows import ShadowsFront
from gateway.admin.api.tenants import TeamsFront, Tenants
from gateway.admin.api.usage import UsageFront
from gateway.admin.console.front import ConsoleFront, protect
from gateway.admin.diagnosis.why_api import WhyFront


def make_app(backend: AdminBackend) -> web.Application:
    """The aiohttp application of the admin listener. `AdminGuard` authorizes every request."""
    tenants, explain, shadows = Tenants(backend), Explain(backend), ShadowsFront(backend)
    admission = SessionAdmission(backend)
    app = web.Application(middlewares=[AdminGuard(backend, admission).middleware])
    app.on_response_prepare.extend((protect, admission.renew))
    console = ConsoleFront(backend, admission)
    app.on_shutdown.append(console.close)
    bound_bodies(app, backend.config.http.max_body)
    app.on_cleanup.extend((tenants.close, explain.close, shadows.close, admission.close))

    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(request: web.Request) -> web.Response:
        """200 while requests are accepted and each model has an endpoint. For load balancers.

        ``?models=ignored``: 200 while requests are accepted. One model without an endpoint then does not end the
        traffic of all other models.
        """
        ready, body = await backend.readiness()
        if request.query.get("models") == "ignored":
            ready = body["accepting"]
        return web.json_response(body, status=200 if ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        """OpenMetrics with exemplars for a scraper that accepts it, else Prometheus' text format."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(await backend.metrics()), headers={"content-type": content_type})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(await backend.state())

    app.add_routes(
        [
            web.get("/livez", livez),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
            web.get("/admin/state", state),
            *tenants.routes(),
            *TeamsFront(backend).routes(),
            *explain.routes(),
            *Pools(backend).routes(),
            *ModelsFront(backend).routes(),
            *Orders(backend).routes(),
            *ComparisonsFront(backend, "rollout").routes(),
            *UsageFront(backend).routes(),
            *RequestsFront(backend).routes(),
            *WhyFront(backend).routes(),
            *AdminBatches(backend).routes(),
            *ComparisonsFront(backend, "experiment").routes(),
            *shadows.routes(),
            *GuardsFront(backend).routes(),
            *ConfigurationFront(backend).routes(),
            *PlaygroundFront(backend).routes(),
            *console.routes(),
            *PipelinesFront(backend).routes(),
        ]
    )
    return app
