# Runs the broker as an unprivileged user that owns one directory; everything else may be read-only.
#
#   docker build -t bartleby .                                      the broker
#   docker build -t bartleby-audit --target audit .                 the audits of its journal, with Spark and Java
#   docker run --rm -it -v bartleby:/var/lib/bartleby bartleby user add orders --role amq
#   docker run --read-only -v bartleby:/var/lib/bartleby \
#     -p 127.0.0.1:61613:61613 -p 127.0.0.1:5672:5672 -p 127.0.0.1:1883:1883 bartleby
#
# STOMP, AMQP and MQTT listen on all of the container's addresses.  If there is no user, the broker creates admin and shows
# the password once.  HTTP stays within the container, for the health check; to reach it from outside add
# `--listen http=0.0.0.0:8161` to the command.

# The hot path is compiled (docs/performance.md, Compiled build); the compiler stays in this stage.
FROM python:3.11-slim AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY broker ./broker
COPY protocols ./protocols
COPY spark_jobs ./spark_jobs
COPY store ./store
RUN python -m venv /opt/bartleby \
 && BARTLEBY_COMPILE=1 /opt/bartleby/bin/pip install --no-cache-dir --disable-pip-version-check '.[import,jwt,otel,postgresql]'

# Java comes from a Python package; java/bin/java starts it with the options that Spark needs (spark_jobs/java.py).
FROM build AS build-audit
RUN /opt/bartleby/bin/pip install --no-cache-dir --disable-pip-version-check '.[spark]' \
 && /opt/bartleby/bin/python -c 'from pathlib import Path; from spark_jobs.java import find_java, spark_home_of; \
    spark_home_of(find_java({}), Path("/opt/bartleby/java"))'
COPY etc/nightly-audit.sh /opt/bartleby/bin/nightly-audit

FROM python:3.11-slim AS base
RUN groupadd --system --gid 10001 bartleby \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/bartleby --no-create-home --shell /usr/sbin/nologin bartleby \
 && install -d -o 10001 -g 10001 -m 0700 /etc/bartleby/secrets \
 && install -d -o 10001 -g 10001 -m 0750 /var/lib/bartleby /var/lib/bartleby-audit
COPY etc/broker.toml /etc/bartleby/broker.toml
ENV PATH=/opt/bartleby/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Let `bartleby status` and other commands find the broker without options.
ENV BARTLEBY_CONFIG=/etc/bartleby/broker.toml BARTLEBY_BROKER__DATA_DIRECTORY=/var/lib/bartleby
USER 10001:10001

# docker-compose.yml also starts this image as a Spark master or worker.
FROM base AS audit
COPY --from=build-audit /opt/bartleby /opt/bartleby
ENV JAVA_HOME=/opt/bartleby/java
WORKDIR /var/lib/bartleby-audit
VOLUME ["/var/lib/bartleby-audit"]
ENTRYPOINT ["nightly-audit"]
CMD ["/var/lib/bartleby", "/var/lib/bartleby-audit"]

FROM base
COPY --from=build /opt/bartleby /opt/bartleby
WORKDIR /var/lib/bartleby
VOLUME ["/var/lib/bartleby"]
EXPOSE 61613 5672 1883 8161
STOPSIGNAL SIGTERM
# Recovering a large journal takes a while: meanwhile the container is starting, not unhealthy.  A standby is healthy
# although it is not ready, and so is a broker with a full disk: a restart would help neither.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
    CMD ["bartleby", "status", "--alive"]
ENTRYPOINT ["bartleby"]
CMD ["run", "--listen", "stomp=0.0.0.0:61613", "--listen", "amqp=0.0.0.0:5672", "--listen", "mqtt=0.0.0.0:1883"]
