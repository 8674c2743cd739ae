#!/bin/sh
# Creates the users of the cluster, once, and their passwords as files that only their owner can read: docs/cluster.md.
#
#   prepare.sh DIRECTORY
#
#   DIRECTORY/users.toml         the users, with hashed passwords, for all three brokers
#   DIRECTORY/link.password      the password with which the brokers log in to each other
#   DIRECTORY/admin.password     the password with which you and your clients log in as admin
#
# For a new password, delete its file and run this again.

set -eu
umask 077

[ $# -eq 1 ] || { echo "usage: prepare.sh DIRECTORY" >&2; exit 2; }
mkdir -p "$1"
cd "$1"

# NAME ROLE
prepare() {
    [ -e "$1.password" ] && return
    # Left over from an interrupted run, or because you deleted the password.
    bartleby user remove "$1" --file users.toml 2>/dev/null || :
    od -An -N 18 -t x1 /dev/urandom | tr -d ' \n' > "$1.new"
    echo >> "$1.new"
    bartleby user add "$1" --role "$2" --file users.toml < "$1.new"
    mv "$1.new" "$1.password"
}

prepare link link
prepare admin amq
