#!/bin/sh
# Installs the Debian packages into a root of its own and runs the daemons from there, in hosts of a
# lab: as the units say, with their user, their capabilities and no others. As root.
#
# The root is this machine's own under an overlay, in a mount namespace: nothing that is written
# reaches the machine, and all of it is gone with this script.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

if [ "$(id -u)" -ne 0 ]; then
    echo 'skipped: the packages can be installed into a lab by root only'
    exit 0
fi
if [ "${1:-}" != --inside ]; then
    cd "$(dirname "$0")/.."
    packages="${CARGO_TARGET_DIR:-target}/debian"
    exec unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc \
        -- "$0" --inside "$(realpath "$packages")" "$(realpath packaging/systemd)"
fi
packages=$2
units=$3
fail() {
    echo "the packages do not work: $*" >&2
    tail -n 20 /root/*.log >&2 2>/dev/null || true
    exit 1
}

# A machine of its own.
mount --make-rprivate /
mount -t tmpfs lab /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mkdir -p /mnt/root/packages /mnt/root/units
cp "$packages"/cambric*.deb /mnt/root/packages
cp "$units"/*.service /mnt/root/units
for directory in /proc /sys /dev; do mount --rbind "$directory" "/mnt/root$directory"; done
mount -t tmpfs run /mnt/root/run
mount -t tmpfs tmp /mnt/root/tmp
mount -t tmpfs home /mnt/root/root
cd /mnt/root
pivot_root . mnt
umount -l /mnt
cd /

printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
dpkg -i /packages/cambric*.deb >/root/dpkg.log 2>&1 || fail 'dpkg -i'
for daemon in bgp-client route-reflector felix; do
    unit=/usr/lib/systemd/system/cambric-$daemon.service
    cmp "$unit" "/units/cambric-$daemon.service" || fail "$unit"
    [ "$(stat -c '%U:%G %a' "/etc/cambric/$daemon.toml")" = 'root:cambric 640' ] ||
        fail "owner and mode of /etc/cambric/$daemon.toml"
    "/usr/bin/cambric-$daemon" --check >/dev/null || fail "/etc/cambric/$daemon.toml"
    if command -v systemd-analyze >/dev/null; then
        found=$(systemd-analyze verify "$unit" 2>&1 | grep "cambric-$daemon" || true)
        [ -z "$found" ] || fail "$found"
        # Tenths: 2.0 and below.
        systemd-analyze security --offline=true --threshold=20 "$unit" >/root/security.log ||
            fail "$unit is too permissive"
    fi
done
unit=/usr/lib/systemd/system/cambric-ipam-gc.service
cmp "$unit" /units/cambric-ipam-gc.service || fail "$unit"
[ "$(stat -c '%U:%G %a' /etc/cambric/ipam-gc.env)" = 'root:cambric 640' ] ||
    fail 'owner and mode of /etc/cambric/ipam-gc.env'

# Three hosts on a switch.
sysctl -qw net.ipv6.conf.all.disable_ipv6=1
ip link add switch type bridge
ip link set switch up
for number in 1 2 3; do
    ip netns add "h$number"
    ip link add "port$number" type veth peer name eth0 netns "h$number"
    ip link set "port$number" master switch up
    ip -n "h$number" address add "10.0.0.$number/24" dev eth0
    ip -n "h$number" link set eth0 up
    ip -n "h$number" link set lo up
done
for number in 1 2; do
    ip -n "h$number" link add cali0 type veth peer name workload0
    ip -n "h$number" link set cali0 up
    ip -n "h$number" link set workload0 up
done

# What the unit of a daemon says under this key.
says() { sed -n "s|^$2=||p" "/usr/lib/systemd/system/cambric-$1.service"; }

# Starts a daemon in a host as systemd would. Without systemd, the file system stays writable as far
# as the user may, and system calls are not filtered.
start() {
    host=$1 daemon=$2
    user=$(says "$daemon" User)
    for directory in $(says "$daemon" RuntimeDirectory); do
        install -d -o "$user" -g "$(says "$daemon" Group)" \
            -m "$(says "$daemon" RuntimeDirectoryMode)" "/run/$directory"
    done
    capabilities=$(says "$daemon" AmbientCapabilities | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
    # shellcheck disable=SC2046  # a line of words, as systemd would split it
    ip netns exec "$host" setpriv --reuid "$user" --regid "$(says "$daemon" Group)" --clear-groups \
        --inh-caps "-all,$capabilities" --ambient-caps "-all,$capabilities" \
        --bounding-set "-all,$capabilities" --no-new-privs \
        -- $(says "$daemon" ExecStart | sed "s|/etc/cambric|${3:-/etc/cambric}|") \
        >>"/root/$daemon-$host.log" 2>&1 &
}

# Asks again until it is so.
await() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what"
        sleep 0.1
    done
}

# The files as they were installed, with what has to be set; the second client has its own.
cd /etc/cambric
sed -i 's|^router_id = .*|router_id = "10.0.0.3"|' route-reflector.toml
printf '[[neighbor_range]]\nprefix = "10.0.0.0/24"\nasn = 64512\nlimit = 9\n' >>route-reflector.toml
printf 'route_reflector_client = true\n' >>route-reflector.toml
printf '[[neighbor]]\naddress = "10.0.0.3"\nasn = 64512\n' >>bgp-client.toml
sed -i 's|^router_id = .*|router_id = "10.0.0.1"|' bgp-client.toml
mkdir -m 750 /etc/second
sed -e 's|10.0.0.1|10.0.0.2|' -e 's|^#control = .*|control = "/run/cambric/second.sock"|' \
    bgp-client.toml >/etc/second/bgp-client.toml
chgrp -R cambric /etc/second
mkdir /root/manifests
cat >/root/manifests/endpoint.yaml <<YAML
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata:
  name: h1-k8s-web-eth0
  namespace: prod
spec:
  orchestrator: k8s
  node: h1
  pod: web
  endpoint: eth0
  interfaceName: cali0
  mac: aa:bb:cc:00:11:22
  ipNetworks: ["10.65.1.3/32"]
YAML
printf 'hostname = "h1"\n' | cat - felix.toml >felix.new
cat felix.new >felix.toml

ip netns exec h1 cambric store serve --listen 127.0.0.1:2379 --manifests /root/manifests \
    >/root/store.log 2>&1 &
start h3 route-reflector
start h1 bgp-client
start h2 bgp-client /etc/second
start h1 felix

# From the store through felix, the kernel, BGP and the reflector into the other kernel.
has_route() { ip -n "$1" -4 route show proto "$2" | grep -q "^$3"; }
await 'the route of the workload, by felix' has_route h1 80 '10.65.1.3 dev cali0'
await 'the file that tells plugins' test -s '/run/calico/endpoint-status/k8s prod%2Fweb eth0'
await 'the same on the other host, by BGP' has_route h2 119 '10.65.1.3 via 10.0.0.1'
for socket in bgp-client route-reflector felix; do
    cambric show status --socket "/run/cambric/$socket.sock" >/root/status.log 2>&1 ||
        fail "cambric show status of $socket"
done
# They run as who they should be, with no more than they need.
for daemon in bgp-client route-reflector felix; do
    pid=$(pgrep -n -x -f "/usr/bin/cambric-$daemon --config /etc/cambric/$daemon.toml")
    [ "$(stat -c %U "/proc/$pid")" = cambric ] || fail "the user of $daemon"
    if command -v capsh >/dev/null; then
        has=$(capsh --decode="$(sed -n 's/^CapEff:\t//p' "/proc/$pid/status")")
        for word in $(says "$daemon" AmbientCapabilities | tr 'A-Z' 'a-z'); do
            has=$(echo ",${has#*=}," | sed "s/,$word,/,/; s/^,*//; s/,*$//")
        done
        [ -z "$has" ] || fail "$daemon has $has, too"
    fi
done
dpkg --purge cambric-bgp-client >>/root/dpkg.log 2>&1 || fail 'dpkg --purge'
[ ! -e /etc/cambric/bgp-client.toml ] || fail 'a purge leaves the configuration'
echo 'the packages install, and their daemons run and route as their units have them run'
