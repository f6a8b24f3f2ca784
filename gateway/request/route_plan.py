"""A decision in its running form: its upstream, and what its route has beyond a plain one."""

from adapters.base import Upstream
from adapters.call import ModelCaller
from gateway.request.spine import Exchange, Observer
from policies.limits.price import expected_output


class RoutePlan:
    """The plan of a decision whose pools answer."""

    __slots__ = ("observers", "of_clients", "upstream")

    def __init__(
        self, upstream: Upstream, observers: tuple[Observer, ...] = (), of_clients: tuple[Observer, ...] = ()
    ) -> None:
        self.upstream = upstream
        self.observers = observers
        """Of all requests: those of clients and those of the steps of pipelines."""
        self.of_clients = of_clients

    def estimate(self, exchange: Exchange) -> None:
        """Set the amounts to reserve: the prompt, the longest output, and their cost."""
        request, price = exchange.request, exchange.price
        prompt, output = request.prompt_tokens, expected_output(request.max_tokens, request.n)
        exchange.cost = None if price is None else price.cost(prompt, output)
        device_ms = exchange.services.device_time.expected(exchange.model, request.operation, request.rows)
        exchange.amounts = (1, prompt + output, request.rows, request.size, device_ms)

    def caller(self, exchange: Exchange) -> ModelCaller | None:
        """Calls the models that answer a client's request instead of pools; None here."""
        return None
