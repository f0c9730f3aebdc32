#!/bin/sh
# Runs a command that needs the network, and where it fails once more, some times, after a pause: a
# registry or a mirror may be out of order for a moment.
set -eu

tries=1
until "$@"; do
    [ "$tries" -lt 5 ] || exit 1
    echo "once more in $((tries * 5)) s: $*" >&2
    sleep "$((tries * 5))"
    tries=$((tries + 1))
done
