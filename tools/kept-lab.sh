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
