"""etc/broker.toml and the tables of docs/configuration.md, written from the models: every setting, its default, why.

The why is the docstring of the field, so that it stands in one place.  `broker_toml()` parses to what `load(None)` gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from annotated_types import Ge, Le
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from broker.config import units
from broker.config.acceptors import HttpAcceptor, StompAcceptor
from broker.config.addresses import DEFAULTS, AddressSection, AddressSetting, Queue
from broker.config.model import SHIPPED, Config
from broker.config.section import Section, kebab
from broker.config.sections import User
from broker.engine.message import RoutingType
from typing import get_args, get_origin, Annotated
