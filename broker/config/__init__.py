"""The configuration: etc/broker.toml, the environment and the options, as one frozen value.

`load` reads and checks everything and reports all problems at once.  Sections: sections.py, acceptors.py, addresses.py;
relations between settings: relations.py; notation of values: units.py.
"""

from __future__ import annotations

from broker.config.acceptors import AmqpAcceptor, MessagingAcceptor, MqttAcceptor, StompAcceptor
from broker.config.addresses import AddressSection, AddressSetting
from broker.config.dead_letter_checks import rules_of
from broker.config.dead_letter_rules import RuleSection
from broker.config.links import LinkSection, RemoteQueueSection, SendSection, TopicsSection
from broker.config.load import load
from broker.config.model import Config, Reload
from broker.config.problems import ConfigError, Problem
from broker.config.sections import BrokerSection, JournalSection, LimitsSection, TelemetrySection
from broker.config.security import SecuritySetting

__all__ = [
    "AddressSection",
    "AddressSetting",
    "AmqpAcceptor",
    "BrokerSection",
    "Config",
    "ConfigError",
    "JournalSection",
    "LimitsSection",
    "LinkSection",
    "MessagingAcceptor",
    "MqttAcceptor",
    "Problem",
    "Reload",
    "RemoteQueueSection",
    "RuleSection",
    "SecuritySetting",
    "SendSection",
    "StompAcceptor",
    "TelemetrySection",
    "TopicsSection",
    "load",
    "rules_of",
]
