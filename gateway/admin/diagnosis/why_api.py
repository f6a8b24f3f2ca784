"""`/admin/why`: the causes of failed and slow requests."""

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import bad_queries, query_parameters
from gateway.admin.diagnosis.evidence import gather
from gateway.admin.diagnosis.question import PARAMETERS, question_of
from gateway.admin.diagnosis.report import report


class WhyFront:
    """The handler. It is for operators: the causes name tenants, keys and addresses."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/admin/why", self._why)]

    async def _why(self, request: web.Request) -> web.Response:
        with bad_queries():
            question = question_of(query_parameters(request, PARAMETERS))
        return web.json_response(report(await gather(self._backend, question)))
