#!/bin/sh
# Runs the three audits of a journal, and writes their reports and the balance that opens the next ledger.  A systemd
# timer or cron runs it every night (docs/audits.md).  It exits with the ledger's status, or else with that of the next
# audit that failed.
#
#   nightly-audit [--compare] JOURNAL STATE [OPTION...]
#
# --compare    compare with the running broker, if one runs on the data directory JOURNAL
# JOURNAL      the broker's data directory, a directory of segments, or a URI
# STATE        where this writes:
#                reports/NIGHT/{ledger,dlq,expiry}.html
#                balances/NIGHT     the messages on the queues at the end of each night
#                opening            a link to the balance with which the next ledger begins
# OPTION...    for each audit, such as --master
#
# `opening` is updated only when the ledger balances (status 0, or 9: more than --fail-over).  Otherwise the next night begins
# where the last good one ended, and reports the same again until you have dealt with it and set `opening` to a later
# balance:
#
#   ln -sfn balances/NIGHT STATE/opening
#
# BARTLEBY_AUDIT_KEEP nights are kept (90 unless set).

set -u

usage() {
    echo "usage: nightly-audit [--compare] JOURNAL STATE [OPTION...]" >&2
    exit 2
}

compare=
while [ $# -gt 0 ]; do
    case $1 in
        --compare)
            compare=yes
            shift
            ;;
        -*) usage ;;
        *) break ;;
    esac
done
[ $# -ge 2 ] || usage
journal=$1
state=$2
shift 2
keep=${BARTLEBY_AUDIT_KEEP:-90}

# One audit; its report goes beside the others of this night.
report() {
    audit=$1
    shift
    bartleby audit "$audit" "$journal" --format html --out "$state/reports/$night/$audit.html" "$@"
}

ledger() {
    if [ -n "$compare" ] && bartleby status --data "$journal" >/dev/null 2>&1; then
        set -- --compare --data "$journal" "$@"
    fi
    if [ -e "$state/opening" ]; then
        set -- --opening "$state/opening" "$@"
    fi
    report ledger --save-balance "$state/balances/$night" "$@"
}

# Names of nights sort by time.  Deletes all but the newest, and never the balance in use.
forget() {
    used=$(readlink "$state/opening" || :)
    for old in $(cd "$state" && ls -d "$1"/* 2>/dev/null | head -n "-$keep"); do
        [ "$old" = "$used" ] || rm -rf "${state:?}/$old"
    done
}

audits() {
    night=$(date -u +%Y-%m-%dT%H-%M-%SZ)
    mkdir -p "$state/reports/$night" "$state/balances" || return 1
    ledger "$@"
    worst=$?
    case $worst in
        0 | 9) ln -sf "balances/$night" "$state/.opening" && mv -T "$state/.opening" "$state/opening" || worst=1 ;;
    esac
    for audit in dlq expiry; do
        report "$audit" "$@"
        status=$?
        [ "$worst" -ne 0 ] || worst=$status
    done
    forget reports
    forget balances
    return "$worst"
}

audits "$@"
