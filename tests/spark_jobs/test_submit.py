"""On a real cluster: Spark's standalone master, two executors, nothing of ours installed where the executors look."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from spark_jobs import pyfiles
from store import decode
from store.record import RecordType
from tests.spark_jobs.cluster import CONF, RUN_S, Cluster
from tests.spark_jobs.journals import Growing, raw, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(RUN_S + 100)]

ROOT: Final = Path(__file__).parents[2]

#: A job of somebody's own on the data source; says also where executors found the code.
_JOB: Final = """\
import json, sys
CONF = json.loads(sys.argv[3])
from pyspark.sql import functions as F
from spark_jobs.session import spark_session
from spark_jobs.source import register

def where(_):
    from spark_jobs import pyfiles
    return str(pyfiles.ROOT)

with spark_session("counting", master=sys.argv[2], conf=CONF) as spark:
    register(spark)
    frame = spark.read.format("bartleby-journal").options(columns="record_type", targetBytes="20k").load(sys.argv[1])
    counts = frame.groupBy("record_type").count().toArrow().to_pylist()
    found = spark.sparkContext.parallelize(range(2), 2).map(where).distinct().collect()
    master = spark.sparkContext.master
    print(json.dumps({"counts": counts, "code": found, "master": master}))
sys.exit(3)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code as a zip."""
    target = tmp_path_factory.mktemp("dist") / "bartleby-audit.zip"
    pyfiles.write(target)
    return target


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that both executors see."""
    growing = Growing(tmp_path_factory.mktemp("data"), seed=31)
    growing.run(80)
    return growing.show()


def test_the_audits_by_spark_submit(cluster: Cluster, archive: Path, journal: Path, tmp_path: Path) -> None:
    """With the code as a zip: the driver and the executors have no other."""
    out = tmp_path / "ledger.json"
    arguments = ("ledger", str(journal), "--format", "json", "--out", str(out))
    done = cluster.submit(ROOT / "spark_jobs" / "job.py", *arguments, py_files=archive)
    assert out.exists(), done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert (done.returncode, result["verdict"]) == (0, "balanced")
    messages = [
        decode.decode_message(record[4], record[5]) for record in raw(journal) if record[3] == RecordType.MESSAGE
    ]
    assert result["summary"]["enqueued"] == sum(len(message.header.queue_ids) for message in messages)
    assert len(list(cluster.work.glob(f"*/*/{archive.name}"))) == 2, "both executors were sent the code"
    assert list((cluster.directory / "here").iterdir()) == []


def test_a_cluster_by_its_name_gets_the_code_from_here(cluster: Cluster, journal: Path, tmp_path: Path) -> None:
    """As `bartleby audit --master`: nothing is packed by hand."""
    done = subprocess.run(
        [sys.executable, "-c", _JOB, str(journal), cluster.url, json.dumps(CONF | {"spark.cores.max": "1"})],
        cwd=tmp_path,
        env=cluster.environment | {"PYTHONPATH": str(pyfiles.ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {row["record_type"]: row["count"] for row in found["counts"]} == Counter(word for _, word in rows(journal))
    assert found["master"] == cluster.url
    assert {Path(place).name for place in found["code"]} == {"bartleby-audit.zip"}
    assert done.stderr == ""
