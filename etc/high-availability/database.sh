#!/bin/sh
# Starts one of two PostgreSQL servers; one is the other's synchronous standby: docs/high-availability.md.
#
#   database.sh NAME OTHER SECRETS [first]
#
#   NAME       this server's host name, which also identifies it as a standby
#   OTHER      the other server's host name
#   SECRETS    the directory that prepare.sh created
#   first      create the database if the other server has none either
#
# A server without data copies the other's data and becomes its standby.  This script promotes neither: you do, or Patroni
# does.  Both servers have the same settings, so a promoted standby waits for a standby in its turn.

set -eu
umask 077

[ $# -ge 3 ] || { echo "usage: database.sh NAME OTHER SECRETS [first]" >&2; exit 2; }
name=$1 other=$2 secrets=$3 first=${4-}
place=${PGDATA:?} data=$PGDATA/data new=$PGDATA/new

PGPASSFILE=${TMPDIR:-/tmp}/replicator.pgpass
export PGPASSFILE
echo "*:*:*:replicator:$(cat "$secrets/replicator.password")" > "$PGPASSFILE"
primary="host=$other user=replicator passfile=$PGPASSFILE connect_timeout=2"

# Prints the other server's role: t for a primary, f for a standby; nothing if it does not answer.
other_is_primary() {
    psql --no-psqlrc --tuples-only --no-align --dbname "$primary dbname=postgres" \
        --command 'SELECT NOT pg_is_in_recovery()' 2> /dev/null || :
}

make() {
    initdb --pgdata "$new" --username postgres --auth-local peer --auth-host scram-sha-256 \
        --encoding UTF8 --no-locale --data-checksums
    postgres --single -D "$new" postgres > /dev/null <<SQL
CREATE ROLE replicator LOGIN REPLICATION PASSWORD '$(cat "$secrets/replicator.password")'
CREATE ROLE bartleby LOGIN PASSWORD '$(cat "$secrets/bartleby.password")'
GRANT pg_read_all_stats TO bartleby
CREATE DATABASE bartleby OWNER bartleby
SQL
    cat >> "$new/postgresql.conf" <<CONF
listen_addresses = '*'
unix_socket_directories = '/tmp'
synchronous_standby_names = 'FIRST 1 ("$name", "$other")'
synchronous_commit = on
wal_keep_size = 1GB                     # a standby that lags by less can still catch up
wal_retrieve_retry_interval = 1s
CONF
    cat >> "$new/pg_hba.conf" <<HBA
host bartleby    bartleby   samenet scram-sha-256
host postgres    replicator samenet scram-sha-256
host replication replicator samenet scram-sha-256
HBA
}

copy() {
    pg_basebackup --pgdata "$new" --dbname "$primary" --checkpoint fast
    touch "$new/standby.signal"
}

if [ ! -e "$data" ]; then
    rm -rf "$new"                       # left by a start that was interrupted
    until [ "$(other_is_primary)" = t ] || [ -n "$first" ]; do
        echo "waiting for $other, to copy its data"
        sleep 1
    done
    if [ "$(other_is_primary)" = t ]; then copy; else make; fi
    mv "$new" "$data"
elif [ ! -e "$data/standby.signal" ] && [ "$(other_is_primary)" = t ]; then
    echo "$other has been promoted: this server's data is older.  Remove $place/data, and it will copy the data of $other." >&2
    exit 1
fi

exec postgres -D "$data" -c cluster_name="$name" -c primary_conninfo="$primary application_name=$name"
