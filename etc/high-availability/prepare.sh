#!/bin/sh
# Creates the users of two brokers and of their database, once: docs/high-availability.md.
#
#   prepare.sh DIRECTORY SERVER,SERVER
#
#   DIRECTORY/users.toml             the users of the brokers, with hashed passwords
#   DIRECTORY/admin.password         the password with which you and your clients log in as admin
#   DIRECTORY/dsn                    with which the brokers find the database and log in
#   DIRECTORY/bartleby.password      the password of the brokers' user in the database
#   DIRECTORY/replicator.password    with which the servers log in to each other
#
# The group may read the files that the servers need; other users may read none.

set -eu
umask 027

[ $# -eq 2 ] || { echo "usage: prepare.sh DIRECTORY SERVER,SERVER" >&2; exit 2; }
mkdir -p "$1"
chmod 750 "$1"
cd "$1"

# password NAME: writes a new password to NAME.new.
password() {
    od -An -N 18 -t x1 /dev/urandom | tr -d ' \n' > "$1.new"
    echo >> "$1.new"
}

for name in bartleby replicator; do
    [ -e "$name.password" ] && continue
    password "$name"
    mv "$name.new" "$name.password"
done

umask 077
echo "host=$2 dbname=bartleby user=bartleby password=$(cat bartleby.password)" > dsn.new
mv dsn.new dsn

[ -e admin.password ] && exit
# Left over from an interrupted run, or because you deleted the password.
bartleby user remove admin --file users.toml 2>/dev/null || :
password admin
bartleby user add admin --role amq --file users.toml < admin.new
mv admin.new admin.password
