"""Makes the login policy and the permissions from the configuration and its files of secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.config import Config
from broker.engine import QueueQuotas
from broker.engine.model.permissions import Permission, PermissionTable
from broker.security.certificates import Rule
from broker.security.login_policy import Policy
from broker.security.users_file import NAME, UnusableFile, Users, read_users

#: The role that may do everything as shipped, named as in Artemis.
SHIPPED_ROLE: Final = "amq"


def users_path(config: Config) -> Path:
    """The path of the users file."""
    return config.security.users_file or Path(config.broker.data_directory) / NAME


def load_policy(config: Config) -> Policy:
    """The login policy from the configuration and the users file.  Raises UnusableFile."""
    path = users_path(config)
    try:
        found = path.exists()
    except OSError as error:  # its directory cannot be read
        why = f"{error.strerror}: let the broker's user read its directory"
        raise UnusableFile(f"{path}: the users file cannot be found: {why}") from None
    if not found and config.security.users_file is not None and not config.security.anonymous:
        raise UnusableFile(f"{path}: there is no users file: create it with `bartleby user add`")
    return policy(config, read_users(path) if found else {} if config.security.jwt.issuer else None)


def policy(config: Config, users: Users | None) -> Policy:
    """The login policy with these users; None: there is no users file.  Raises UnusableFile."""
    security = config.security
    named = None if security.anonymous_roles is None else frozenset(security.anonymous_roles)
    anonymous: frozenset[str] | None
    if users is None:
        anonymous = named if named is not None else frozenset({SHIPPED_ROLE})
    elif not security.anonymous:
        anonymous = None
    elif named is None:
        raise UnusableFile("security.anonymous = true with a users file needs security.anonymous-roles: set it")
    else:
        anonymous = named
    rules = [Rule(each.subject, each.user) for each in config.certificate_users]
    connections = {
        each.match: each.max_connections for each in config.resource_limit_settings if each.max_connections is not None
    }
    return Policy(users, anonymous, rules, config.limits.connections_per_user_max, connections)


def allot(config: Config, quotas: QueueQuotas) -> None:
    """Set how many queues users may create, each and together."""
    queues = {each.match: each.max_queues for each in config.resource_limit_settings if each.max_queues is not None}
    quotas.change(config.limits.queues_per_user_max, queues, config.limits.queues_max)


def permission_table(config: Config) -> PermissionTable:
    """The permissions of roles.  Raises InvalidMatch."""
    return PermissionTable(
        [
            (setting.match, {permission: frozenset(getattr(setting, permission.value)) for permission in Permission})
            for setting in config.security_settings
        ],
        syntax=config.wildcard_addresses.syntax(),
    )
