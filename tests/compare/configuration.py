"""The broker.xml that both brokers run with: Artemis as it is, Bartleby as `bartleby import` makes it its own.

Each protocol has addresses of its own, named with it in front, so that scenarios do not meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.importing import translate
from tests.support.daemon import DaemonProcess
from tests.support.peers import Artemis

Ports = dict[str, int]

PROTOCOLS: Final = ("amqp", "stomp")

#: Milliseconds of a redelivery delay, a scheduled delivery, an expiry scan: long enough to be told from none.
DELAY_MS: Final = 1_000
SCAN_MS: Final = 300

_ADDRESSES: Final = """
<address name="{p}.DLQ"><anycast><queue name="{p}.DLQ"/></anycast></address>
<address name="{p}.Expired"><anycast><queue name="{p}.Expired"/></anycast></address>
<address name="{p}.two"><anycast><queue name="{p}.two.a"/><queue name="{p}.two.b"/></anycast></address>
<address name="{p}.mixed"><anycast><queue name="{p}.mixed.any"/></anycast>
  <multicast><queue name="{p}.mixed.multi"/></multicast></address>
<address name="{p}.news.#"><multicast><queue name="{p}.news.all"/></multicast></address>
<address name="{p}.news.*"><multicast><queue name="{p}.news.one"/></multicast></address>
<address name="{p}.news.eu"><multicast><queue name="{p}.news.eu.queue"/></multicast></address>
<address name="{p}.news.eu.west"><multicast/></address>
<address name="{p}.news"><multicast/></address>
<address name="{p}.filtered">
  <anycast><queue name="{p}.filtered"><filter string="color = 'red'"/></queue></anycast></address>
<address name="{p}.lvq"><anycast><queue name="{p}.lvq" last-value-key="stock"/></anycast></address>
<address name="{p}.lvq.default"><anycast><queue name="{p}.lvq.default" last-value="true"/></anycast></address>
<address name="{p}.ring"><anycast><queue name="{p}.ring" ring-size="3"/></anycast></address>
<address name="{p}.exclusive"><anycast><queue name="{p}.exclusive" exclusive="true"/></anycast></address>
<address name="{p}.groups"><anycast><queue name="{p}.groups"/></anycast></address>
<address name="{p}.lasting"><anycast><queue name="{p}.lasting" non-destructive="true"/></anycast></address>
<address name="{p}.single"><anycast><queue name="{p}.single" max-consumers="1"/></anycast></address>
<address name="{p}.purged"><anycast><queue name="{p}.purged" purge-on-no-consumers="true"/></anycast></address>
<address name="{p}.gate"><anycast><queue name="{p}.gate" consumers-before-dispatch="2"/></anycast></address>
<address name="{p}.disabled"><anycast><queue name="{p}.disabled" enabled="false"/></anycast></address>
<address name="{p}.diverted"><anycast><queue name="{p}.diverted"/></anycast></address>
<address name="{p}.copies"><anycast><queue name="{p}.copies"/></anycast></address>
<address name="{p}.stolen"><anycast><queue name="{p}.stolen"/></anycast></address>
<address name="{p}.nowhere"><multicast/></address>
<address name="{p}.rescued"><multicast/></address>
"""
_SETTINGS: Final = """
<address-setting match="{p}.#">
  <dead-letter-address>{p}.DLQ</dead-letter-address><expiry-address>{p}.Expired</expiry-address>
  <max-delivery-attempts>3</max-delivery-attempts><auto-delete-queues>false</auto-delete-queues>
  <auto-delete-addresses>false</auto-delete-addresses>
  <default-queue-routing-type>ANYCAST</default-queue-routing-type>
  <default-address-routing-type>ANYCAST</default-address-routing-type>
</address-setting>
<address-setting match="{p}.DLQ"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
<address-setting match="{p}.delayed"><redelivery-delay>{delay}</redelivery-delay></address-setting>
<address-setting match="{p}.old"><expiry-delay>{scan}</expiry-delay></address-setting>
<address-setting match="{p}.rescued"><send-to-dla-on-no-route>true</send-to-dla-on-no-route></address-setting>
<address-setting match="{p}.retro"><retroactive-message-count>2</retroactive-message-count></address-setting>
<address-setting match="{p}.brief.#">
  <auto-delete-queues>true</auto-delete-queues><auto-delete-queues-message-count>-1</auto-delete-queues-message-count>
</address-setting>
"""
_DIVERTS: Final = """
<divert name="{p}-copy"><address>{p}.diverted</address><forwarding-address>{p}.copies</forwarding-address>
  <filter string="color = 'red'"/><exclusive>false</exclusive></divert>
<divert name="{p}-steal"><address>{p}.diverted</address><forwarding-address>{p}.stolen</forwarding-address>
  <filter string="color = 'blue'"/><exclusive>true</exclusive></divert>
"""


def broker_xml(ports: Ports) -> str:
    """The file, with an acceptor on each of these ports, by protocol."""

    def each(text: str) -> str:
        return "".join(text.format(p=protocol, delay=DELAY_MS, scan=SCAN_MS) for protocol in PROTOCOLS)

    acceptors = "".join(
        f'<acceptor name="{protocol}">tcp://127.0.0.1:{port}?protocols={protocol.upper()}</acceptor>'
        for protocol, port in ports.items()
    )
    return f"""<?xml version="1.0"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>compared</name><security-enabled>false</security-enabled><journal-type>NIO</journal-type>
<journal-datasync>false</journal-datasync><critical-analyzer>false</critical-analyzer><max-disk-usage>-1</max-disk-usage>
<message-expiry-scan-period>{SCAN_MS}</message-expiry-scan-period>
<address-queue-scan-period>{SCAN_MS}</address-queue-scan-period>
<acceptors>{acceptors}</acceptors>
<diverts>{each(_DIVERTS)}</diverts>
<address-settings>{each(_SETTINGS)}</address-settings>
<addresses>{each(_ADDRESSES)}</addresses>
</core></configuration>
"""


def bartleby(directory: Path) -> DaemonProcess:
    """Bartleby, with what `bartleby import` makes of the file."""
    return DaemonProcess(directory, translate(broker_xml({"amqp": 5672, "stomp": 61613}).encode()).text)


class Compared(Artemis):
    """Artemis with an acceptor for each protocol, and no more durability than is compared."""

    protocols: Sequence[str] = PROTOCOLS


def artemis(directory: Path, home: Path) -> Compared:
    """Artemis of this installation."""
    options = ("--no-autotune", "--no-fsync", "--nio", "--role", "amq", "--java-memory", "512M")
    return Compared(directory, home, *options, broker_xml=broker_xml)
