"""The sources of access keys, in the order in which AWS's own libraries try them."""

import asyncio
import os
import shlex
from typing import Any

from adapters.credentials import aws_files, aws_services
from adapters.credentials.command import run
from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.sigv4 import AccessKey
from adapters.credentials.token_endpoint import TokenOutlet, object_of
from config.schema.protocols.credentials import AwsCredentials

PROCESS_SECONDS = 60.0
MOST_PROFILES = 10
"""Profiles that may name each other as their source."""
_SSO = ("sso_session", "sso_start_url", "login_session")

Keys = Issued[AccessKey]


async def access_key(config: AwsCredentials, region: str, outlet: TokenOutlet) -> Keys:
    """The access key of a section. Raises `RenewalError`."""
    chain = _Chain(region, outlet)
    if config.role is not None and config.token_file is not None:
        return await chain.services.of_web_identity(config.role, config.token_file, config.session_name)
    if config.key_id is not None and config.secret is not None:
        token = "" if config.session_token is None else config.session_token.get_secret_value()
        key = AccessKey(config.key_id.get_secret_value(), config.secret.get_secret_value(), token)
        base = Keys(key, None)
    elif config.profile is not None:
        base = await chain.of_profile(config.profile)
    else:
        base = await chain.first()
    if config.role is None:
        return base
    return await chain.services.of_role(base.value, config.role, config.session_name, config.external_id)


class _Chain:
    """One search. The files are read again by each: a key in them may have changed."""

    def __init__(self, region: str, outlet: TokenOutlet) -> None:
        self.services = aws_services.AwsServices(region, outlet)
        self._profiles: dict[str, dict[str, str]] | None = None

    async def first(self) -> Keys:
        """The first key of the environment, the profile, web identity, the container, and the instance."""
        if (key := of_environment()) is not None:
            return key
        environment = os.environ
        named = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
        profile = (await self._read_profiles()).get(named or "default", {})
        if "role_arn" in profile and "web_identity_token_file" not in profile:
            return await self.of_profile(named or "default")
        if (token_file := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")) and (role := environment.get("AWS_ROLE_ARN")):
            name = environment.get("AWS_ROLE_SESSION_NAME") or aws_services.SESSION
            return await self.services.of_web_identity(role, token_file, name)
        if named or _can_make(profile):
            return await self.of_profile(named or "default")
        if aws_services.has_container():
            return await aws_services.of_container()
        return await aws_services.of_instance()

    async def of_profile(self, name: str, depth: int = 0) -> Keys:
        """The key of a profile. Raises `RenewalError`."""
        profile = (await self._read_profiles()).get(name)
        if profile is None:
            raise RenewalError(f"no file has the profile {name}")
        session = profile.get("role_session_name") or aws_services.SESSION
        if (role := profile.get("role_arn")) and depth < MOST_PROFILES:
            if token_file := profile.get("web_identity_token_file"):
                return await self.services.of_web_identity(role, token_file, session)
            if "mfa_serial" in profile:
                raise RenewalError(f"the profile {name} needs a code of a person (mfa_serial)")
            source = await self._source_of(profile, name, depth)
            return await self.services.of_role(source.value, role, session, profile.get("external_id"))
        if (key := _key_in(profile)) is not None:
            return Keys(key, None)
        if program := profile.get("credential_process"):
            return await of_process(program)
        if any(field in profile for field in _SSO):
            raise RenewalError(
                f"the profile {name} needs a person's login: use `credential_process` with "
                "`aws configure export-credentials --format process`, or another source"
            )
        raise RenewalError(f"the profile {name} has no key")

    async def _source_of(self, profile: dict[str, str], name: str, depth: int) -> Keys:
        """The key with which a profile assumes its role."""
        if (source := profile.get("source_profile")) is not None:
            if source == name:  # its own key
                if (own := _key_in(profile)) is None:
                    raise RenewalError(f"the profile {name} has no key")
                return Keys(own, None)
            return await self.of_profile(source, depth + 1)
        kind = profile.get("credential_source", "").lower()
        if kind == "environment":
            if (key := of_environment()) is None:
                raise RenewalError("the environment has no access key")
            return key
        if kind == "ecscontainer":
            return await aws_services.of_container()
        if kind == "ec2instancemetadata":
            return await aws_services.of_instance()
        raise RenewalError(f"the profile {name} has a role, but no source_profile or credential_source")

    async def _read_profiles(self) -> dict[str, dict[str, str]]:
        if self._profiles is None:
            self._profiles = await asyncio.to_thread(aws_files.profiles)
        return self._profiles


def of_environment() -> Keys | None:
    """The key of the environment; None without one."""
    environment = os.environ
    if not (id_ := environment.get("AWS_ACCESS_KEY_ID")) or not (secret := environment.get("AWS_SECRET_ACCESS_KEY")):
        return None
    return Keys(AccessKey(id_, secret, environment.get("AWS_SESSION_TOKEN", "")), None)


async def of_process(program: str) -> Keys:
    """The key that the `credential_process` of a profile prints."""
    try:
        arguments = tuple(shlex.split(program))
    except ValueError:
        arguments = ()
    if not arguments:
        raise RenewalError("credential_process is not a command line")
    name = os.path.basename(arguments[0])
    answer = object_of(await run(arguments, PROCESS_SECONDS), name)
    if answer.get("Version") != 1:
        raise RenewalError(f"{name}: the version of the output is not 1")
    return aws_services.key_of({**answer, "Token": answer.get("SessionToken") or ""}, name)


def _key_in(profile: dict[str, Any]) -> AccessKey | None:
    if not (id_ := profile.get("aws_access_key_id")) or not (secret := profile.get("aws_secret_access_key")):
        return None
    return AccessKey(id_, secret, profile.get("aws_session_token") or "")


def _can_make(profile: dict[str, str]) -> bool:
    return _key_in(profile) is not None or any(name in profile for name in ("role_arn", "credential_process", *_SSO))
