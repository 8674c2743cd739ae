"""The configuration: etc/broker.toml, the environment and the options, as one frozen value.

`load` reads and checks everything and reports all problems at once.  Sections: sections.py, acceptors.py, addresses.py;
relations between settings: relations.py; notation of values: units.py.
"""

from __future__ import annotations

from broker.config.acceptors import (
    AmqpAcceptor,
    HttpAcceptor,
    MessagingAcceptor,
    MqttAcceptor,
    StompAcceptor,
)
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting, Queue
from broker.config.dead_letter_checks import rules_of
from broker.config.dead_letter_rules import RuleSection
from broker.config.environment import COMMAND_VARIABLES
from broker.config.links import (
    LinkSection,
    RemoteQueueSection,
    SendSection,
    TopicsSection,
)
from broker.config.load import apply_listen, load
from broker.config.model import Config, Reload
from broker.config.problems import ConfigError, Problem
from broker.config.sections import (
    BrokerSection,
    JournalSection,
    LimitsSection,
    LogSection,
    RetentionSection,
    TelemetrySection,
)
from broker.config.security import CertificateUser, ResourceLimit, SecuritySection, SecuritySetting

__all__ = [
    "COMMAND_VARIABLES",
    "DEFAULTS",
    "AddressSection",
    "AddressSetting",
    "AmqpAcceptor",
    "BrokerSection",
    "CertificateUser",
    "Config",
    "ConfigError",
    "HttpAcceptor",
    "JournalSection",
    "LimitsSection",
    "LinkSection",
    "LogSection",
    "MessagingAcceptor",
    "MqttAcceptor",
    "Problem",
    "Queue",
    "Reload",
    "RemoteQueueSection",
    "ResourceLimit",
    "RetentionSection",
    "RuleSection",
    "SecuritySection",
    "SecuritySetting",
    "SendSection",
    "StompAcceptor",
    "TelemetrySection",
    "TopicsSection",
    "apply_listen",
    "load",
    "rules_of",
]
