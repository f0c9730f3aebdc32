#!/bin/sh
# Drains this node when the machine shuts down or reboots: run by systemd before the BGP client is
# stopped. A stop of the unit for another reason, such as its removal, does nothing.
set -eu
[ "$(systemctl is-system-running || true)" = stopping ] || exit 0
systemctl --quiet is-active cambric-bgp-client || exit 0
# The request ends with the BGP client: after a soft reboot or a canceled shutdown it must not be drained.
cambric node drain --local --until-stop --timeout 30s || echo 'the node is not drained; its sessions are closed' >&2
# Neighbors then remove the routes at once, instead of waiting for a restart.
systemctl kill --signal=INT cambric-bgp-client
for _ in 1 2 3 4 5 6 7 8 9 10; do
    systemctl --quiet is-active cambric-bgp-client || exit 0
    sleep 1
done
