"""The configuration: etc/broker.toml, the environment and the options, as one frozen value.

`load` reads and checks it all and tells all problems at once.  Sections: sections.py, acceptors.py, addresses.py;
what must hold between them: relations.py; how values are written: units.py.
"""

from __future__ import annotations

from broker.config.acceptors import Acceptor, AmqpAcceptor, HttpAcceptor, MessagingAcceptor, StompAcceptor
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting, Queue
from broker.config.environment import COMMAND_VARIABLES
from broker.config.load import apply_listen, check, load
from broker.config.model import Config, Reload
from broker.config.problems import ConfigError, Problem
from broker.config.sections import (
    BrokerSection,
    JournalSection,
    LimitsSection,
    LogSection,
    RetentionSection,
    SecuritySection,
    User,
)

__all__ = [
    "COMMAND_VARIABLES",
    "DEFAULTS",
    "Acceptor",
    "AddressSection",
    "AddressSetting",
    "AmqpAcceptor",
    "BrokerSection",
    "Config",
    "ConfigError",
    "HttpAcceptor",
    "JournalSection",
    "LimitsSection",
    "LogSection",
    "MessagingAcceptor",
    "Problem",
    "Queue",
    "Reload",
    "RetentionSection",
    "SecuritySection",
    "StompAcceptor",
    "User",
    "apply_listen",
    "check",
    "load",
]
