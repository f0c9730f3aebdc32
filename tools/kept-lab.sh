#!/bin/sh
# A kept fabric on three etcds, with the `cambric` that is named, or of target/quick: a workload comes,
# answers, and goes.
set -eu
cd "$(dirname "$0")/.."
cambric=${1:-target/quick/cambric}
name="kept-$$"

"$cambric" lab up --name "$name" --nodes 2 --reflectors 2 --workloads 1 --store etcd --members 3
trap '"$cambric" lab down --name "$name"' EXIT
trap 'exit 1' HUP INT TERM

added=$("$cambric" lab workload add --name "$name" web --node node2)
echo "$added"
address=$(echo "$added" | sed -n 's/.*: \([0-9.]*\),.*/\1/p')
# The first packets may be lost while neighbors ask for each other.
tries=1
until "$cambric" lab exec --name "$name" w1 -- ping -c 1 -W 3 "$address"; do
    [ "$tries" -lt 20 ] || exit 1
    tries=$((tries + 1))
done
"$cambric" lab exec --name "$name" node1 -- cambric ipam show --ip "$address"
"$cambric" lab status --name "$name"

# The store configures BGP: a reflector is drained, nothing is missed, and it comes back.
operator() { "$cambric" lab exec --name "$name" node1 -- cambric "$@"; }
settled() {
    tries=1
    until "$cambric" lab status --name "$name"; do
        [ "$tries" -lt 60 ] || exit 1
        tries=$((tries + 1))
        sleep 1
    done
}
operator reflector list
operator reflector drain rr2
operator reflector list | grep '^rr2 *drained'
settled
"$cambric" lab exec --name "$name" w1 -- ping -c 1 -w 30 "$address"
operator reflector undrain rr2
operator reflector list
settled

# An operator adds a peer and a filter. The peer is up, and the filter rejects its routes.
resources() {
    cat <<END
apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: workloads}
spec: {importV4: [{cidr: 10.65.0.0/16, matchOperator: In, action: Reject}]}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: node1-node2}
spec: {node: node1, peerIP: 10.0.0.12, asNumber: 64512, filters: [workloads]}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: node2-node1}
spec: {node: node2, peerIP: 10.0.0.11, asNumber: 64512}
END
}
# shows COUNT PATTERN WORD...: waits until a report of node1 has this number of such lines.
shows() {
    count=$1 pattern=$2
    shift 2
    tries=1
    until [ "$(operator show "$@" | grep -c "$pattern")" -eq "$count" ]; do
        if [ "$tries" -ge 60 ]; then
            operator show "$@"
            echo "show $*: not $count lines with: $pattern" >&2
            exit 1
        fi
        tries=$((tries + 1))
        sleep 1
    done
}
up='^Node_10_0_0_12 .* Established '
refused='Node_10_0_0_12 .*refused by import policy .*BGPFilter workloads importV4\[0\]'
resources | operator apply -f -
shows 1 "$up" neighbors
shows 1 "$refused" routes --why
resources | operator delete -f -
shows 0 '^Node_' neighbors
shows 0 "$refused" routes --why

"$cambric" lab workload del --name "$name" web
if "$cambric" lab exec --name "$name" w1 -- ping -c 1 -W 1 "$address"; then
    echo "$address still answers" >&2
    exit 1
fi
if "$cambric" lab workload del --name "$name" web; then
    echo "a workload that is gone was taken away once more" >&2
    exit 1
fi

# The same without the store's word on BGP.
"$cambric" lab demo --from-files --nodes 2 --workloads 1
