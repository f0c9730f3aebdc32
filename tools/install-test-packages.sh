#!/bin/sh
# Installs what `make test` needs from Debian: foreign BGP daemons, etcd, container runtimes with
# the reference CNI plugins, Neutron with its database, server and client of DHCP, decoders, systemd
# for the hosts that packages are installed in, kubectl, and a C++ compiler for libFuzzer.
#
# Only what is missing, and only as root; otherwise lists in one line what to install. The
# packages bring services: none is started, now or at the next boot, and no port is touched.
set -eu
PATH="$PATH:/usr/sbin:/sbin:/usr/lib/frr"

# program or directory, package
needed='
bird bird2
zebra frr
bgpdump bgpdump
c++ g++
capsh libcap2-bin
containerd containerd
ctr containerd
curl curl
crun crun
dhclient isc-dhcp-client
dnsmasq dnsmasq-base
bgpctl openbgpd
etcd etcd-server
etcdctl etcd-client
gobgp gobgpd
gobgpd gobgpd
ip iproute2
iptables iptables
kubectl kubernetes-client
nft nftables
mariadb mariadb-client-core
mariadbd mariadb-server-core
openssl openssl
ping iputils-ping
podman podman
pgrep procps
/lib/systemd/systemd systemd
/usr/lib/cni/ptp containernetworking-plugins
/usr/lib/python3/dist-packages/etcd3gw python3-etcd3gw
/usr/lib/python3/dist-packages/neutron python3-neutron
/usr/lib/python3/dist-packages/pip python3-pip
/usr/lib/python3.11/lib2to3 python3-lib2to3
/usr/lib/python3/dist-packages/pymysql python3-pymysql
tshark tshark
'

missing=$(echo "$needed" | while read -r program package; do
    [ -z "$program" ] || [ -d "$program" ] || command -v "$program" >/dev/null || echo "$package"
done | sort -u | tr '\n' ' ')
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "make test needs these packages of Debian: apt-get install $missing" >&2
    exit 1
fi

# While this file prints 101, packages do not start their services (see invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

echo "installing for the tests: $missing"
export DEBIAN_FRONTEND=noninteractive
# The packages need not survive a power failure in this minute: this takes half the time.
# shellcheck disable=SC2086  # one word a package
"$(dirname "$0")/insist.sh" sh -euc 'apt-get -qq update && apt-get -qq "$@"' apt-get \
    install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
    -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600 $missing >/dev/null

# Nor at the next boot, for those that were not here before.
if command -v systemctl >/dev/null; then
    for package in $missing; do
        dpkg -L "$package" |
            sed -nE 's!^(/usr)?/lib/systemd/system/([^@/]*[.](service|socket|timer))$!\2!p'
    done | while read -r unit; do
        systemctl disable --quiet "$unit" 2>/dev/null || true
    done
fi
