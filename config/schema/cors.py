"""The ``cors`` of ``http``: the web pages that may read responses."""

from typing import Annotated

from pydantic import Field

from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import Delay

Origin = Annotated[
    str,
    Shape(
        r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?",
        "an origin as browsers send it, such as https://app.example.com or http://localhost:3000, in lower case and "
        "without a path",
    ),
]


class CorsConfig(Section):
    """Cross-origin requests of browsers to the HTTP listener. Origins are compared exactly."""

    origins: tuple[Origin, ...] = Field(min_length=1, max_length=1000)
    """Origins whose pages may send requests and read responses."""
    max_age: Delay = 600.0
    """How long a browser may cache the response to a preflight request."""
