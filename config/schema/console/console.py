"""The ``console`` of the file: the pages for operators and tenants' admins on the admin listener."""

from typing import Annotated

from pydantic import Field

from config.schema.console.oidc import OidcConfig
from config.schema.section import Section
from config.schema.text import Url
from config.schema.units import Duration


class ConsoleConfig(Section):
    """The console: pages at ``/console/`` on the admin listener."""

    enabled: bool = True
    """``false`` serves no pages, and ends all sessions."""
    url: Url | None = None
    """Address of the admin listener in browsers, such as ``https://headrace.example.org``, if it is behind a proxy."""
    idle: Annotated[Duration, Field(le=7 * 86400)] = 3600.0
    """A session ends after this time without a request."""
    longest: Annotated[Duration, Field(le=30 * 86400)] = 43200.0
    """A session ends after this time in any case."""
    oidc: OidcConfig | None = None
    """Sign-in by an OpenID provider, beside keys. Needs ``auth.admin.required``."""
