"""The STOMP clients of PHP, Ruby and Perl, if they are installed: Debian's php-stomp, ruby-stomp, libnet-stomp-perl."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop.amqp_peers import HERE, RUN_S, run, tool
from tests.support.daemon import DaemonProcess


def has(*command: str) -> bool:
    """Whether an interpreter has its client."""
    return subprocess.run(command, capture_output=True, timeout=RUN_S).returncode == 0


@pytest.mark.timeout(2 * RUN_S)
def test_php(broker: DaemonProcess) -> None:
    php = tool("php")
    if not has(php, "-r", "exit(extension_loaded('stomp') ? 0 : 1);"):
        pytest.skip("PHP's extension stomp is not installed")
    assert len(run([php, str(HERE / "php" / "stomp.php"), str(broker.port)]).splitlines()) == 3


@pytest.mark.timeout(2 * RUN_S)
def test_ruby(broker: DaemonProcess) -> None:
    ruby = tool("ruby")
    if not has(ruby, "-e", "require 'stomp'"):
        pytest.skip("Ruby's gem stomp is not installed")
    assert len(run([ruby, str(HERE / "ruby" / "stomp.rb"), str(broker.port)]).splitlines()) == 18


@pytest.mark.timeout(2 * RUN_S)
def test_perl(broker: DaemonProcess) -> None:
    perl = tool("perl")
    if not has(perl, "-MNet::Stomp", "-e", "1"):
        pytest.skip("Perl's module Net::Stomp is not installed")
    assert len(run([perl, str(HERE / "perl" / "stomp.pl"), str(broker.port)]).splitlines()) == 5
