"""Mosquitto and RabbitMQ from their Debian packages, as brokers of MQTT, with limits that do not interfere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.brokers import Child, NotAvailable, free_port, session_cpu_seconds, session_memory_bytes
from bench.generator import Target


class _Served:
    """A broker with an MQTT port, in a process or several of one session."""

    name: str
    protocols: Sequence[str] = ("mqtt",)
    strict_prefix: str | None = None
    warm_up_s = 1.0

    def __init__(self, parent: Path | None) -> None:
        self._child = Child(self.name, parent)
        self._port = 0

    def target(self, protocol: str) -> Target:
        assert protocol == "mqtt", protocol
        pid = self._child.pid
        return Target(
            "127.0.0.1",
            self._port,
            cpu=lambda: session_cpu_seconds(pid),
            memory=lambda: session_memory_bytes(pid),
        )

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()


class Mosquitto(_Served):
    """Mosquitto with its persistence, which saves a snapshot now and then and syncs nothing."""

    name = "mosquitto"

    def start(self) -> float:
        program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
        if program is None:
            raise NotAvailable("no mosquitto: install the Debian package mosquitto, or give --broker for others")
        self._port = self._port or free_port()
        directory = self._child.directory
        config = directory / "mosquitto.conf"
        lines = [
            f"listener {self._port} 127.0.0.1",
            "allow_anonymous true",
            "persistence true",
            f"persistence_location {directory}/",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            "log_type error",
            *(["user root"] if os.getuid() == 0 else []),
        ]
        config.write_text("\n".join(lines) + "\n")
        _, before = self._child.start([program, "-c", str(config)], re.compile(""))
        return before + self._child.await_port(self._port)


class RabbitMQ(_Served):
    """RabbitMQ with its plugins for MQTT and AMQP 1.0, through durable classic queues and publisher confirms.

    Its addresses of AMQP 1.0 begin with /queue/.
    """

    name = "rabbitmq"
    protocols: Sequence[str] = ("mqtt", "amqp")
    warm_up_s = 5.0  # its virtual machine compiles when it loads: caches and queues are warm by then
    _amqp_port = 0
    PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def start(self) -> float:
        if not self.PROGRAM.exists():
            raise NotAvailable(f"no {self.PROGRAM}: install the Debian package rabbitmq-server, or give --broker")
        self._port = self._port or free_port()
        self._amqp_port = self._amqp_port or free_port()
        directory = self._child.directory
        config, plugins = directory / "rabbitmq.conf", directory / "enabled_plugins"
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self._amqp_port}",
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{self._port}",
            "mqtt.allow_anonymous = true",
            "mqtt.default_user = guest",
            "mqtt.default_pass = guest",
            "mqtt.prefetch = 1000",
            "vm_memory_high_watermark.relative = 0.8",
            "disk_free_limit.absolute = 50MB",
            "log.console = false",
            "log.console.level = error",
        ]
        config.write_text("\n".join(lines) + "\n")
        plugins.write_text("[rabbitmq_mqtt,rabbitmq_amqp1_0].\n")
        environment = {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_DIST_PORT": str(free_port()),
        }
        command = ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), str(self.PROGRAM)]
        _, before = self._child.start(command, re.compile("completed with"))
        return before + self._child.await_port(self._port)

    def target(self, protocol: str) -> Target:
        if protocol == "amqp":
            return replace(super().target("mqtt"), port=self._amqp_port, login="slot", passcode="slot", prefixed=True)
        return super().target(protocol)
