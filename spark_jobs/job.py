"""The audits for spark-submit: `spark-submit --py-files bartleby-audit.zip job.py ledger JOURNAL`.

Accepts the same options as `bartleby audit`, but does not read a broker's configuration: the journal must be named.
"""

from __future__ import annotations

from spark_jobs.command import audit

if __name__ == "__main__":
    audit(prog_name="bartleby-audit")
