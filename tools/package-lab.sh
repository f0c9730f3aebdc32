#!/bin/sh
# Installs the Debian packages in three hosts of a lab, each with a systemd of its own, as
# docs/operate/install.md describes it. Then checks the services: their users and capabilities, that
# they route, that they restart, that no daemon reaches the files of another one, and that a purge leaves
# nothing. A fourth host is upgraded from a version with one user for all daemons. As root.
#
# The hosts are in namespaces, with this machine's files under overlays (tools/package-host.sh):
# nothing that is written reaches the machine, and all of it is gone with this script.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

skip() {
    echo "skipped: the packages are not installed into a lab: $*"
    exit 0
}
if [ "$(id -u)" -ne 0 ]; then skip 'only root can do that'; fi
if [ "${1:-}" != --inside ]; then
    cd "$(dirname "$0")/.."
    [ -x /lib/systemd/systemd ] || skip 'systemd is not installed'
    command -v tshark >/dev/null || skip 'tshark is not installed'
    exec unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc \
        -- "$0" --inside "$(realpath "${CARGO_TARGET_DIR:-target}/debian")" "$PWD"
fi
packages=$2 repository=$3

mount --make-rprivate /
mount -t tmpfs lab /mnt
mkdir /mnt/cgroup
mount -t cgroup2 cgroup2 /mnt/cgroup 2>/dev/null || skip 'no cgroup2 can be mounted here'
group=$(mktemp -d -p /mnt/cgroup 2>/dev/null) ||
    skip 'no control group can be made here'

hosts= outer=
clean() {
    [ -z "$outer" ] || kill -KILL "$outer" 2>/dev/null || true
    for host in $hosts; do kill -KILL "$(cat "/mnt/$host/pid")" 2>/dev/null || true; done
    wait
    find "$group" -depth -type d -exec rmdir {} \;
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

# Runs a command in a host.
in_host() {
    host=$1
    shift
    timeout --kill-after=5 300 nsenter --target "$(cat "/mnt/$host/pid")" --all -- "$@"
}

fail() {
    echo "the packages do not work: $*" >&2
    for host in $hosts; do
        in_host "$host" systemctl --failed --no-legend >&2 || true
        in_host "$host" journalctl --no-pager --quiet --lines=40 >&2 || true
    done
    cat /mnt/*/log >&2
    # Once more: a summary shows only the last lines.
    echo "the packages do not work: $*" >&2
    exit 1
}

# Asks again until it is so, for longer than it takes on a slow machine.
await() {
    what=$1
    shift
    late=$(($(date +%s) + 240))
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$late" ] || fail "$what"
        sleep 0.1
    done
}

# Process 1 of a host, by the number that it has here. Before it is systemd, its root is this
# machine's, and nobody is to enter.
first_process() { pgrep --parent "$1" --exact systemd >"/mnt/$2/pid"; }

# Boots a host that has a port of the switch, and the packages with these names.
boot() {
    host=$1 address=$2
    shift 2
    mkdir -p "/mnt/$host/upper" "/mnt/$host/work" "/mnt/$host/root"
    root=/mnt/$host/root
    mount -t overlay -o "lowerdir=/,upperdir=/mnt/$host/upper,workdir=/mnt/$host/work" \
        overlay "$root" 2>/dev/null || skip 'no overlay can be mounted over the root here'
    [ -x "$root/lib/systemd/systemd" ] || skip 'systemd is not in the file system of the root here'
    # Of this machine's own services, none.
    rm -rf "$root"/etc/systemd/system/* "$root"/etc/rc?.d "$root/etc/fstab"
    rm -f "$root/usr/sbin/policy-rc.d"
    echo "$host" >"$root/etc/hostname"
    mkdir "$root/packages"
    mount --bind "$packages" "$root/packages"
    mkdir "$group/$host"
    (
        # 0: the process that writes it.
        echo 0 >"$group/$host/cgroup.procs"
        exec unshare --cgroup --mount --net --pid --uts --ipc --fork --kill-child \
            -- "$repository/tools/package-host.sh" "/mnt/$host"
    ) >"/mnt/$host/log" 2>&1 &
    outer=$!
    await "process 1 of $host" first_process "$outer" "$host"
    hosts="$hosts $host" outer=
    ip link add "port-$host" type veth peer name eth0 netns "$(cat "/mnt/$host/pid")"
    ip link set "port-$host" master switch up
    await "systemd in $host" in_host "$host" systemctl is-active basic.target
    in_host "$host" ip address add "$address/24" dev eth0
    in_host "$host" ip link set eth0 up
    install_packages "$host" /packages "$@"
}

# Installs the packages with these names from a directory of a host. Changed configurations stay.
install_packages() {
    host=$1 directory=$2
    shift 2
    [ "$#" -gt 0 ] || return 0
    names=
    for package in "$@"; do names="$names $(cd "/mnt/$host/root$directory" && echo "${package}"_*.deb)"; done
    # shellcheck disable=SC2086  # a file a package
    in_host "$host" sh -c 'cd "$0" && dpkg -i --force-confold,downgrade "$@"' "$directory" $names \
        >"/mnt/$host/dpkg.log" 2>&1 || fail "dpkg -i in $host: $(cat "/mnt/$host/dpkg.log")"
}

# Prints a property of a unit in a host, as systemd reports it.
property() { in_host "$1" systemctl show --property="$3" --value "cambric-$2.service"; }

# A unit as it is after the installation: what the repository has, tight, and neither enabled nor
# started; its configuration is for the daemon's eyes only.
installed() {
    host=$1 daemon=$2 config=$3 reader=$4 unit=cambric-$2.service
    cmp "/mnt/$host/root/usr/lib/systemd/system/$unit" "$repository/packaging/systemd/$unit" ||
        fail "$unit is not the repository's"
    [ "$(in_host "$host" stat -c '%U:%G %a' "/etc/cambric/$config")" = "root:$reader 640" ] ||
        fail "owner and mode of /etc/cambric/$config"
    found=$(in_host "$host" systemd-analyze verify "$unit" 2>&1 | grep "$unit" || true)
    [ -z "$found" ] || fail "$found"
    [ "$(property "$host" "$daemon" ActiveState)" = inactive ] || fail "$unit was started"
    [ "$(property "$host" "$daemon" UnitFileState)" = disabled ] || fail "$unit was enabled"
}

# Prints the value of this key in the unit of a daemon.
setting() { sed -n "s|^$2=||p" "$repository/packaging/systemd/cambric-$1.service"; }

# One capability a line, in order.
sorted() { tr 'A-Z, ' 'a-z\n\n' | sed '/^$/d' | sort; }

# One number a line, in order.
numbers() { tr ' ' '\n' | sed '/^$/d' | sort -n; }

# Prints the process of a daemon that does its work: of a BGP daemon the only child of its first one.
worker() {
    main=$(property "$1" "$2" MainPID)
    case "$2" in
    bgp-client | route-reflector) in_host "$1" pgrep --parent "$main" ;;
    *) echo "$main" ;;
    esac
}

# A process has the user and the restrictions of its unit, holds these capabilities, and passes on those.
restricted() {
    pid=$1 holds=$2 inherits=$3
    status=/mnt/$host/status
    in_host "$host" cat "/proc/$pid/status" >"$status"
    user=$(in_host "$host" id -u "$(setting "$daemon" User)")
    [ "$(sed -n 's/^Uid:\t//p' "$status")" = "$user	$user	$user	$user" ] || fail "the user of $unit"
    groups=$(setting "$daemon" Group)
    [ "$daemon" = store ] || groups="$groups cambric"
    [ "$(in_host "$host" id -Gn "$(setting "$daemon" User)")" = "$groups" ] || fail "the groups of the user of $unit"
    [ "$(sed -n 's/^Groups:\t//p' "$status" | numbers)" = "$(in_host "$host" id -G "$(setting "$daemon" User)" | numbers)" ] ||
        fail "the groups of $unit"
    grep -qx 'NoNewPrivs:	1' "$status" || fail "$unit can gain privileges"
    grep -qx 'Seccomp:	2' "$status" || fail "system calls of $unit are not filtered"
    bounding=$(setting "$daemon" CapabilityBoundingSet | sorted)
    for set in CapInh CapPrm CapEff CapBnd CapAmb; do
        case "$set" in
        CapPrm | CapEff) wanted=$holds ;;
        CapBnd) wanted=$bounding ;;
        *) wanted=$inherits ;;
        esac
        has=$(capsh --decode="$(sed -n "s/^$set:\t//p" "$status")" | sed 's/^[^=]*=//' | sorted)
        [ "$has" = "$wanted" ] || fail "$set of process $pid of $unit: $has, not $wanted"
    done
}

# A running daemon has exactly the user and the capabilities of its unit. Of a BGP daemon the first
# process has them, and the one that parses BGP has given them up.
confined() {
    host=$1 daemon=$2 unit=cambric-$2.service
    main=$(property "$host" "$daemon" MainPID)
    ambient=$(setting "$daemon" AmbientCapabilities | sorted)
    case "$daemon" in
    bgp-client | route-reflector)
        restricted "$main" "$ambient" ''
        restricted "$(worker "$host" "$daemon")" '' ''
        ;;
    *) restricted "$main" "$ambient" "$ambient" ;;
    esac
    # Tenths: 2.0 and below.
    in_host "$host" systemd-analyze security --no-pager --threshold=20 "$unit" >"/mnt/$host/security" ||
        fail "$unit is too permissive"
    sed -n 's/.*for cambric/cambric/p' "/mnt/$host/security"
}

# The limits that a unit has are those of its process, and its daemon reports its state.
bounded() {
    host=$1 daemon=$2 unit=cambric-$2.service
    pid=$(property "$host" "$daemon" MainPID)
    if [ -n "$(setting "$daemon" WatchdogSec)" ]; then
        found=$(property "$host" "$daemon" WatchdogUSec)
        case "$(setting "$daemon" WatchdogSec):$found" in
        60:1min | 120:2min) ;;
        *) fail "the watchdog of $unit: $found" ;;
        esac
        found=$(in_host "$host" systemctl show --property=WatchdogSignal --value "$unit")
        [ "$found" = 9 ] || fail "the signal of the watchdog of $unit: $found"
        await "the state of $unit" has_state "$host" "$daemon" .
    fi
    wanted=$(($(setting "$daemon" MemoryMax | sed 's/G$/*1024*1024*1024/')))
    found=$(property "$host" "$daemon" MemoryMax)
    [ "$found" = "$wanted" ] || fail "MemoryMax of $unit: $found, not $wanted"
    # Where the kernel's memory controller belongs to this hierarchy, it has the limit.
    limit=$group/$host/system.slice/$unit/memory.max
    [ ! -e "$limit" ] || [ "$(cat "$limit")" = "$wanted" ] || fail "$limit: $(cat "$limit")"
    wanted=$(setting "$daemon" OOMScoreAdjust)
    found=$(property "$host" "$daemon" OOMScoreAdjust)
    [ "$found" = "${wanted:-$found}" ] || fail "OOMScoreAdjust of $unit: $found"
    wanted=$(setting "$daemon" LimitNOFILE)
    found=$(property "$host" "$daemon" LimitNOFILE)
    [ "$found" = "$wanted" ] || fail "LimitNOFILE of $unit: $found"
    # Without CAP_SYS_RESOURCE, systemd sets neither a lower score nor a higher limit than it has.
    if capsh --has-p=cap_sys_resource 2>/dev/null; then
        found=$(in_host "$host" cat "/proc/$pid/oom_score_adj")
        [ "$found" = "$(property "$host" "$daemon" OOMScoreAdjust)" ] ||
            fail "oom_score_adj of $unit: $found"
        found=$(in_host "$host" sed -n 's/^Max open files *//p' "/proc/$pid/limits")
        [ "${found%% *}" = "$wanted" ] || fail "open files of $unit: $found"
    fi
}
has_state() { property "$1" "$2" StatusText | grep -q "$3"; }

# Starts a daemon as an operator would, and looks at it.
start() {
    host=$1 daemon=$2 unit=cambric-$2.service
    in_host "$host" "/usr/bin/cambric-$daemon" --check >/dev/null || fail "--check of $daemon"
    in_host "$host" systemctl enable --quiet --now "$unit" || fail "start of $unit"
    confined "$host" "$daemon"
    bounded "$host" "$daemon"
    owns_directories "$host" "$daemon"
    await "cambric show status of $daemon" answers "$host" "$daemon"
    await "a line of $daemon in the journal" logged "$host" "$daemon"
}
# cambric-bfd has no files of its own, and every user may look for its socket.
start_bfd() {
    in_host "$1" /usr/bin/cambric-bfd --check >/dev/null || fail '--check of bfd'
    in_host "$1" systemctl enable --quiet --now cambric-bfd || fail 'start of cambric-bfd'
    confined "$1" bfd
    await 'cambric show status of bfd' answers "$1" bfd
}
owns_directories() {
    for directory in "/run/cambric-$2" "/var/lib/cambric-$2"; do
        [ "$(in_host "$1" stat -c '%U:%G %a' "$directory")" = "cambric-$2:cambric-$2 750" ] ||
            fail "owner and mode of $directory"
    done
}
logged() {
    # A process is known to the kernel by 15 octets of its name.
    in_host "$1" journalctl --quiet --unit="cambric-$2.service" \
        _COMM="$(echo "cambric-$2" | cut -c -15)" | grep -q .
}

# The journal has an event's name, priority and fields.
has_event() {
    in_host "$1" journalctl --quiet --output=json SYSLOG_IDENTIFIER="cambric-$2" \
        CAMBRIC_EVENT="$3" PRIORITY="$4" | grep -q "\"CAMBRIC_$5\""
}
answers() { in_host "$1" cambric show status --socket "/run/cambric-$2/$2.sock" >/dev/null; }

# Runs a command in a host with the rights of a user.
as() {
    host=$1 user=$2
    shift 2
    in_host "$host" setpriv --reuid="$user" --regid="$(in_host "$host" id -g "$user")" --init-groups -- "$@"
}

# A process with the user of one daemon uses the socket and the files of that one, and reads the
# configuration, but reaches neither the sockets nor the files of the other one.
isolated() {
    host=$1 own=$2 other=$3
    file=$own.lab
    as "$host" "cambric-$own" cambric show status --socket "/run/cambric-$own/$own.sock" >/dev/null ||
        fail "the user of $own does not use its socket"
    for directory in run var/lib; do
        as "$host" "cambric-$own" sh -c "echo >'/$directory/cambric-$own/$file'" ||
            fail "the user of $own does not write in /$directory/cambric-$own"
        in_host "$host" sh -c "echo secret >'/$directory/cambric-$other/$file'; chmod 644 '/$directory/cambric-$other/$file'"
        as "$host" "cambric-$other" cat "/$directory/cambric-$other/$file" >/dev/null ||
            fail "the user of $other does not read in /$directory/cambric-$other"
        for attack in "cat /$directory/cambric-$other/$file" "ls /$directory/cambric-$other" \
            "touch /$directory/cambric-$other/new" "rm /$directory/cambric-$other/$file" \
            "mv /$directory/cambric-$other /$directory/cambric-$own/$other"; do
            # shellcheck disable=SC2086  # words of a command
            ! as "$host" "cambric-$own" $attack >/dev/null 2>&1 || fail "the user of $own: $attack"
        done
        in_host "$host" rm "/$directory/cambric-$own/$file" "/$directory/cambric-$other/$file"
    done
    denied "$host" "cambric-$own" "$other"
    for config in "$own" "$other"; do
        as "$host" "cambric-$own" cat "/etc/cambric/$config.toml" >/dev/null ||
            fail "the user of $own does not read the configuration of $config"
        ! as "$host" "cambric-$own" sh -c ": >>/etc/cambric/$config.toml" 2>/dev/null ||
            fail "the user of $own changes the configuration of $config"
    done
}
# The command line names the group that may use a socket.
denied() {
    ! said=$(as "$1" "$2" cambric show status --socket "/run/cambric-$3/$3.sock" 2>&1) ||
        fail "the user $2 uses the socket of $3"
    echo "$said" | grep -q "permission denied; .* member of the group cambric-$3\$" || fail "$said"
}

connects() {
    in_host "$1" setpriv --reuid="$2" --regid="$2" --clear-groups \
        timeout 3 bash -c ': </dev/tcp/10.0.0.3/179' 2>/dev/null
}

# The host guard was loaded before the daemon started, and the status has this. Another user of the host
# does not even connect to the reflector, which root does in the same way.
guarded() {
    in_host "$1" cambric show status --socket "/run/cambric-$2/$2.sock" | grep -q "host guard.*$3" ||
        fail "the host guard of $2: $(in_host "$1" cambric show status)"
    in_host "$1" cambric guard --check "--$2" "/etc/cambric/$2.toml" --user "cambric-$2" >/dev/null ||
        fail "cambric guard --check of $2"
    await "a connection of root of $1 to the reflector" connects "$1" 0
    ! connects "$1" 65534 || fail "another user of $1 connects to the reflector"
}

# Is another process than this one, and up.
is_new() {
    [ "$(property "$1" "$2" ActiveState)" = active ] && [ "$(property "$1" "$2" MainPID)" != "$3" ] &&
        answers "$1" "$2"
}

# A daemon that is restarted comes back, and one that is killed, too.
comes_back() {
    host=$1 daemon=$2 unit=cambric-$2.service
    before=$(property "$host" "$daemon" MainPID)
    in_host "$host" systemctl restart "$unit" || fail "restart of $unit"
    await "$unit after a restart" is_new "$host" "$daemon" "$before"
    before=$(property "$host" "$daemon" MainPID)
    in_host "$host" systemctl kill --kill-who=main --signal=KILL "$unit"
    await "$unit after a SIGKILL" is_new "$host" "$daemon" "$before"
    [ "$(property "$host" "$daemon" NRestarts)" = 1 ] || fail "$unit is not restarted once"
    confined "$host" "$daemon" >/dev/null
}

# The process that parses BGP is killed: its parent starts it again, and the unit does not notice it.
parser_comes_back() {
    struck=$1 daemon=$2 unit=cambric-$2.service
    first=$(property "$struck" "$daemon" MainPID)
    before=$(worker "$struck" "$daemon")
    for watched in h1 h2; do watch_routes "$watched"; done
    in_host "$struck" kill -KILL "$before" || fail "a signal to the parser of $unit"
    await "the parser of $unit after a SIGKILL" is_new_parser "$struck" "$daemon" "$before"
    [ "$(property "$struck" "$daemon" MainPID)" = "$first" ] || fail "$unit is restarted"
    confined "$struck" "$daemon" >/dev/null
    routes
    for watched in h1 h2; do keeps_routes "$watched" "$daemon"; done
}
is_new_parser() {
    found=$(worker "$1" "$2") && [ "$found" != "$3" ] && answers "$1" "$2"
}

# A daemon that hangs is killed by the watchdog and started again. A running one is not: it was
# started by a restart, after which systemd has counted one more start only.
survives_hang() {
    hung=$1 daemon=$2 unit=cambric-$2.service
    directory=/mnt/$hung/root/etc/systemd/system/$unit.d
    mkdir -p "$directory"
    printf '[Service]\nWatchdogSec=12\n' >"$directory/watchdog.conf"
    in_host "$hung" systemctl daemon-reload
    in_host "$hung" systemctl restart "$unit" || fail "restart of $unit"
    [ "$(property "$hung" "$daemon" WatchdogUSec)" = 12s ] || fail "the drop-in of $unit"
    routes
    before=$(property "$hung" "$daemon" MainPID)
    for watched in h1 h2; do watch_routes "$watched"; done
    in_host "$hung" kill -STOP "$(worker "$hung" "$daemon")" || fail "a signal to $unit"
    await "$unit after it has hung" is_new "$hung" "$daemon" "$before"
    # Also more than once, where the machine stops for as long as the watchdog waits.
    [ "$(property "$hung" "$daemon" NRestarts)" -ge 1 ] || fail "$unit is not restarted"
    await "the watchdog of $unit in the journal" timed_out "$hung" "$unit"
    routes
    for watched in h1 h2; do keeps_routes "$watched" "$daemon"; done
    rm -r "$directory"
    in_host "$hung" systemctl daemon-reload
}
timed_out() { in_host "$1" journalctl --quiet --unit="$2" | grep -q 'Watchdog timeout'; }

# Records the kernel's messages about routes of a host until it is asked for them.
watch_routes() {
    in_host "$1" systemd-run --quiet --unit=routes sh -c 'exec ip -4 monitor route >/run/routes' ||
        fail "ip monitor in $1"
    await "ip monitor in $1" sees_routes "$1"
}
# A route of its own shows that the monitor has begun.
sees_routes() {
    in_host "$1" ip route add 192.0.2.1/32 dev eth0 proto 250
    in_host "$1" ip route del 192.0.2.1/32 dev eth0 proto 250
    in_host "$1" grep -q '^192.0.2.1' /run/routes
}
keeps_routes() {
    in_host "$1" systemctl stop routes
    ! in_host "$1" grep '^Deleted 10.65.1.[34]' /run/routes || fail "a failure of $2 deletes routes of $1"
}

# Of the packages nothing is left but their users; and what was there before is not of this host.
purged() {
    host=$1
    in_host "$host" sh -c "dpkg --purge \$(dpkg-query -f '\${Package}\n' -W 'cambric*')" \
        >"/mnt/$host/dpkg.log" 2>&1 || fail "dpkg --purge in $host: $(cat "/mnt/$host/dpkg.log")"
    ! in_host "$host" pgrep '^cambric' >/dev/null || fail "a purge in $host leaves daemons"
    ! in_host "$host" nft list table inet cambric-guard >/dev/null 2>&1 ||
        fail "a purge in $host leaves the host guard"
    [ -z "$(in_host "$host" ip route show table 80119 2>/dev/null)" ] || fail "a purge in $host leaves the route of Felix"
    # Others come and go there meanwhile.
    left=$(find "/mnt/$host/upper" -ignore_readdir_race -name '*cambric*' ! -type c
        in_host "$host" find /run /tmp /dev/shm -ignore_readdir_race -name '*cambric*')
    [ -z "$left" ] || fail "a purge in $host leaves" "$left"
}

# Makes packages like those of a version with the user cambric and common directories for all daemons. Its
# programs had control sockets there by default, which is the file in /srv/former here.
former() {
    made=/mnt/$1/root/former
    shift
    mkdir "$made"
    for package in "$@"; do
        tree=/mnt/former
        dpkg-deb -R "$packages/${package}"_*.deb "$tree"
        rm -rf "$tree"/usr/lib/cambric-* "$tree/DEBIAN/preinst" "$tree/DEBIAN/md5sums"
        sed -i 's/^Version: .*/Version: 0.1.99-1/' "$tree/DEBIAN/control"
        for unit in "$tree"/usr/lib/systemd/system/*.service; do
            [ "${unit##*/}" != cambric-store.service ] || continue
            sed -i -e '/carry-over/d' -e 's/^\(User\|Group\)=.*/\1=cambric/' \
                -e 's/^\(Runtime\|State\)Directory=cambric-[a-z-]*/\1Directory=cambric/' \
                -e '/^Exec/s/--user cambric-[a-z-]*/--user cambric/' \
                -e '/^Exec/s|/etc/cambric/|/srv/former/|' "$unit"
        done
        sed -i 's|\(/var/lib/cambric\)-[a-z-]*/|\1/|' "$tree"/etc/cambric/*.toml 2>/dev/null || true
        {
            echo '#!/bin/sh'
            echo 'getent passwd cambric >/dev/null ||'
            echo '    adduser --quiet --system --group --no-create-home --home /nonexistent cambric'
            # shellcheck disable=SC2016  # for the script
            echo '[ -n "$2" ] || { chgrp -R cambric /etc/cambric; chmod -R o= /etc/cambric; }'
            sed -n '/^# Automatically/,$p' "$tree/DEBIAN/postinst"
        } >"$tree/DEBIAN/postinst.new"
        cat "$tree/DEBIAN/postinst.new" >"$tree/DEBIAN/postinst"
        rm "$tree/DEBIAN/postinst.new"
        dpkg-deb -Znone -b "$tree" "$made" >/dev/null
        rm -r "$tree"
    done
}

# A daemon of h4 answers on the socket of the earlier version, or of this one, as this user.
runs_as() {
    in_host h4 cambric show status --socket "$3" >/dev/null &&
        [ "$(in_host h4 stat -c '%U' "/proc/$(property h4 "$1" MainPID)")" = "$2" ]
}
await_former() {
    for daemon in bgp-client felix; do
        await "$daemon of the earlier version" runs_as "$daemon" cambric "/run/cambric/$daemon.sock"
    done
}
await_own() {
    for daemon in bgp-client felix; do
        await "$daemon after the upgrade" runs_as "$daemon" "cambric-$daemon" "/run/cambric-$daemon/$daemon.sock"
        owns_directories h4 "$daemon"
    done
}
# The journal of h4 has an event since the last start of a daemon.
since_start() {
    start=_SYSTEMD_INVOCATION_ID=$(property h4 "$1" InvocationID)
    shift
    in_host h4 journalctl --quiet --output=cat "$start" "$@" | grep -q .
}
restarted() { since_start bgp-client CAMBRIC_EVENT=restart.deferral_ended CAMBRIC_FAMILY=ipv4-unicast; }
from_snapshot() { since_start felix CAMBRIC_EVENT=datastore.status CAMBRIC_STATUS=snapshot; }
# The last start of the BGP client was a graceful restart, and Felix had its snapshot.
carried() {
    await 'a graceful restart of the BGP client of h4' restarted
    await 'the route of h4, by Felix' has_route h4 80 '10.65.1.4 dev cali0'
    await 'the same on another host' has_route h2 119 '10.65.1.4 via 10.0.0.4'
    await 'the snapshot of Felix of h4' from_snapshot
    await 'the ports of the BGP client in the packet filter of h4' \
        in_host h4 sh -c 'nft list table inet cambric-felix | grep -qw 1790'
}

ip link add switch type bridge
ip link set switch up
boot h1 10.0.0.1 cambric cambric-bfd cambric-bgp-client cambric-felix cambric-cni
boot h2 10.0.0.2 cambric cambric-bgp-client
boot h3 10.0.0.3 cambric cambric-bfd cambric-route-reflector
installed h1 bgp-client bgp-client.toml cambric
installed h1 drain bgp-client.toml cambric
installed h1 bfd bfd.toml cambric
installed h1 felix felix.toml cambric
installed h1 felix-boot felix-boot.nft cambric
installed h1 ipam-gc ipam-gc.env root
installed h1 store store.env root
installed h3 route-reflector route-reflector.toml cambric

# The files as they were installed have examples where something has to be set.
for of in h1:bgp-client h3:route-reflector; do
    host=${of%:*} daemon=${of#*:}
    ! said=$(in_host "$host" "/usr/bin/cambric-$daemon" --check 2>&1) ||
        fail "the example's router id of $daemon passes"
    echo "$said" | grep -qF 'is the example of the packaged file' || fail "$said"
done

# The files as they were installed, with what has to be set.
cd /mnt/h3/root/etc/cambric
sed -i 's|^router_id = .*|router_id = "10.0.0.3"|' route-reflector.toml
printf '[[neighbor_range]]\nprefix = "10.0.0.0/24"\nasn = 64512\nlimit = 9\n' >>route-reflector.toml
printf 'route_reflector_client = true\nbfd = { multiplier = 100 }\n' >>route-reflector.toml
for number in 1 2; do
    cd "/mnt/h$number/root/etc/cambric"
    printf '[[neighbor]]\naddress = "10.0.0.3"\nasn = 64512\n' >>bgp-client.toml
    [ "$number" != 1 ] || printf 'bfd = { multiplier = 100 }\n' >>bgp-client.toml
    sed -i "s|^router_id = .*|router_id = \"10.0.0.$number\"|" bgp-client.toml
done

# A store with one workload of h1.
in_host h1 ip link set lo up
in_host h1 ip link add cali0 type veth peer name workload0
in_host h1 ip link set cali0 up
in_host h1 ip link set workload0 up
mkdir /mnt/h1/root/manifests
cat >/mnt/h1/root/manifests/endpoint.yaml <<YAML
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
sed 's/h1/h4/; s/web/db/; s/11:22/11:33/; s|1\.3/32|1.4/32|' /mnt/h1/root/manifests/endpoint.yaml \
    >/mnt/h1/root/manifests/of-h4.yaml
sed -i 's|^OPTIONS=.*|OPTIONS=--listen 127.0.0.1:2379 --listen 10.0.0.1:2379 --manifests /manifests|' /mnt/h1/root/etc/cambric/store.env
in_host h1 systemctl enable --quiet --now cambric-store || fail 'start of cambric-store'
confined h1 store
store_serves() { in_host h1 journalctl --quiet --unit=cambric-store | grep -q 'the store is served'; }
await 'a line of the store in the journal' store_serves

# Writes that the store has answered survive a SIGKILL, and no other user reads its file.
in_store() {
    in_host h1 env ETCD_ENDPOINTS=http://127.0.0.1:2379 DATASTORE_TYPE=etcdv3 cambric "$@"
}
printf 'apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: kept}\n' \
    >/mnt/h1/root/kept.yaml
in_store apply -f /kept.yaml | grep -q '^Successfully applied 1 ' || fail 'cambric apply'
before=$(property h1 store MainPID)
in_host h1 systemctl kill --kill-who=main --signal=KILL cambric-store
is_restarted() {
    [ "$(property h1 store ActiveState)" = active ] && [ "$(property h1 store MainPID)" != "$1" ] &&
        in_store get globalnetworkset kept
}
await 'the store after a SIGKILL' is_restarted "$before"
[ "$(in_host h1 stat -c '%U:%G %a' /var/lib/cambric-store)" = 'cambric-store:cambric-store 700' ] ||
    fail 'owner and mode of /var/lib/cambric-store'
! as h1 cambric-felix cat /var/lib/cambric-store/store >/dev/null 2>&1 || fail 'the user of felix reads the store'

for host in h1 h3; do start_bfd "$host"; done
start h3 route-reflector
guarded h3 route-reflector 'loaded by .cambric guard.'
start h1 bgp-client
guarded h1 bgp-client 'in effect'
start h2 bgp-client
# The tables of the boot, which Felix removes with its first complete filter.
boot_is_over() { ! in_host "$1" nft list table inet cambric-felix-boot >/dev/null 2>&1; }
in_host h1 systemctl start cambric-felix-boot || fail 'start of cambric-felix-boot'
! boot_is_over h1 || fail 'there are no tables of the boot'
start h1 felix
await 'the end of the boot' boot_is_over h1
in_host h1 systemctl restart cambric-felix-boot || true
boot_is_over h1 || fail 'the boot begins again while Felix runs'
in_host h1 sh -ec 'systemctl enable cambric-felix-boot; systemctl disable --now cambric-felix-boot' || fail 'the boot stays'
! in_host h1 systemctl is-enabled --quiet cambric-felix-boot || fail 'the boot is still enabled'
in_host h1 systemctl start cambric-ipam-gc || fail 'start of cambric-ipam-gc'
confined h1 ipam-gc
bounded h1 ipam-gc

# From the store through felix, the kernel, BGP and the reflector into the other kernel.
has_route() { in_host "$1" ip -4 route show proto "$2" | grep -q "^$3"; }
routes() {
    await 'the route of the workload, by felix' has_route h1 80 '10.65.1.3 dev cali0'
    await 'the same on the other host, by BGP' has_route h2 119 '10.65.1.3 via 10.0.0.1'
    await 'routes that are not stale' has_no_stale
}
# A second failure before the routes are advertised again deletes stale ones (RFC 4724 section 4.2).
has_no_stale() {
    for asked in h1 h2 h3; do
        shown=$(in_host "$asked" cambric show routes --json) || return 1
        ! echo "$shown" | grep -Eq '"stale": *true' || return 1
    done
}
routes
await 'an event in the journal' has_event h3 route-reflector session.established 6 ROUTER_ID
await 'the file that tells plugins' \
    in_host h1 test -s '/run/calico/endpoint-status/k8s prod%2Fweb eth0'

isolated h1 bgp-client felix
isolated h1 felix bgp-client
denied h1 cambric-ipam-gc felix
# The collector has a user namespace, and still reads a certificate of the group.
in_host h1 systemd-run --quiet --wait --collect --property=User=cambric-ipam-gc --property=PrivateUsers=yes \
    cat /etc/cambric/bgp-client.toml || fail 'the collector does not read a file of the group cambric'
# A password file of the group of one daemon is closed to the others.
in_host h1 install -m 640 -g cambric-felix /dev/null /etc/cambric/felix-password
as h1 cambric-felix cat /etc/cambric/felix-password || fail 'felix does not read its password'
for user in bgp-client ipam-gc; do
    for file in felix-password ipam-gc.env store.env; do
        ! as h1 "cambric-$user" cat "/etc/cambric/$file" >/dev/null 2>&1 || fail "the user of $user reads $file"
    done
done
in_host h1 rm /etc/cambric/felix-password

# A member of the group of one daemon uses its socket, and no other.
in_host h1 useradd --user-group --groups cambric-felix oncall
as h1 oncall cambric show status --socket /run/cambric-felix/felix.sock >/dev/null ||
    fail 'a member of the group of felix does not use its socket'
denied h1 oncall bgp-client

# A reload of a file with a mistake fails, reports the reason, and changes nothing.
reports_why() {
    in_host "$1" journalctl --quiet --unit="cambric-$2.service" | grep -qF 'unknown key `mistake`'
}
refuses() {
    host=$1 daemon=$2 config=/mnt/$1/root/etc/cambric/$2.toml
    before=$(property "$host" "$daemon" MainPID)
    cp -p "$config" "/mnt/$host/good.toml"
    printf 'mistake = 1\n' | cat - "/mnt/$host/good.toml" >"$config"
    ! in_host "$host" systemctl reload "cambric-$daemon" 2>/dev/null ||
        fail "a reload of a bad file of $daemon"
    await "why a reload of $daemon failed, in the journal" reports_why "$host" "$daemon"
    cat "/mnt/$host/good.toml" >"$config"
    in_host "$host" systemctl reload "cambric-$daemon" || fail "a reload of a good file of $daemon"
    [ "$(property "$host" "$daemon" MainPID)" = "$before" ] || fail "a reload of $daemon is a restart"
}
refuses h3 route-reflector
refuses h1 bgp-client
refuses h1 felix

# The user may read the file, and the running daemon may not: a reload fails, and names it.
elsewhere=/srv/lab/password
names_elsewhere() {
    in_host h3 journalctl --quiet --unit=cambric-route-reflector >/mnt/h3/journal
    grep -qF "not reloaded: error: $elsewhere" /mnt/h3/journal && grep -q 'requires restart' /mnt/h3/journal
}
mkdir -p "/mnt/h3/root${elsewhere%/*}"
echo password >"/mnt/h3/root$elsewhere"
cd /mnt/h3/root/etc/cambric
cp -p route-reflector.toml /mnt/h3/good.toml
printf 'hostname = "h3"\n[datastore]\nendpoints = ["http://10.0.0.1:2379"]\nusername = "h3"\npassword_file = "%s"\n' \
    "$elsewhere" >route-reflector.toml
as h3 cambric-route-reflector cambric-route-reflector --check >/dev/null || fail "--check of a file with $elsewhere"
! in_host h3 systemctl reload cambric-route-reflector 2>/dev/null || fail "a reload with $elsewhere"
await "the file $elsewhere in the journal" names_elsewhere
cat /mnt/h3/good.toml >route-reflector.toml
in_host h3 systemctl reload cambric-route-reflector || fail 'a reload of the good file'
cd /

# A reload takes a neighbor over, and away, in the same process.
reload() { in_host h3 systemctl reload cambric-route-reflector || fail 'systemctl reload'; }
has_neighbor() { in_host h3 cambric show neighbors | grep -qF 10.0.0.99; }
has_no_neighbor() { ! has_neighbor; }
before=$(property h3 route-reflector MainPID)
cd /mnt/h3/root/etc/cambric
cp -p route-reflector.toml /mnt/h3/before.toml
printf '[[neighbor]]\naddress = "10.0.0.99"\nasn = 64512\n' >>route-reflector.toml
reload
await 'a neighbor, by a reload' has_neighbor
cat /mnt/h3/before.toml >route-reflector.toml
reload
await 'no such neighbor, by a reload' has_no_neighbor
cd /
[ "$(property h3 route-reflector MainPID)" = "$before" ] || fail 'a reload is a restart'

comes_back h3 route-reflector
comes_back h1 bgp-client
comes_back h1 felix
routes

parser_comes_back h3 route-reflector
parser_comes_back h2 bgp-client

# A restart of cambric-bfd, and a SIGKILL, are not noticed by the neighbor: its session stays up, and counts
# no further one. systemd has the sockets and the state.
has_session() { in_host "$1" cambric show bfd | grep -wF "$2" | grep -qw Up; }
for host in h1 h3; do await "a BFD session of $host" has_session "$host" "10.0.0.$((4 - ${host#h}))"; done
ups=$(in_host h3 journalctl --quiet --output=cat CAMBRIC_EVENT=bfd.session_up | wc -l)
comes_back h1 bfd
has_taken_over() {
    [ "$(in_host h1 journalctl --quiet --output=cat CAMBRIC_EVENT=bfd.taken_over | wc -l)" -ge 2 ]
}
await 'two takeovers of sessions by cambric-bfd' has_taken_over
for host in h1 h3; do has_session "$host" "10.0.0.$((4 - ${host#h}))" || fail "the BFD session of $host"; done
[ "$(in_host h3 journalctl --quiet --output=cat CAMBRIC_EVENT=bfd.session_up | wc -l)" = "$ups" ] ||
    fail 'a restart of cambric-bfd ends a session'
! in_host h3 journalctl --quiet --output=cat CAMBRIC_EVENT=bfd.session_down | grep -q . ||
    fail 'a restart of cambric-bfd is a failure for its neighbor'
# A stop is no failure either: the neighbor receives AdminDown.
in_host h1 systemctl stop cambric-bfd || fail 'stop of cambric-bfd'
is_disabled() {
    in_host h3 journalctl --quiet --output=cat CAMBRIC_EVENT=bfd.session_down | grep -q 'disabled'
}
await 'AdminDown by a stop' is_disabled
in_host h1 systemctl start cambric-bfd || fail 'start of cambric-bfd'
await 'a BFD session after a stop' has_session h1 10.0.0.3

survives_hang h3 route-reflector
survives_hang h2 bgp-client
survives_hang h1 felix

# An upgrade restarts what runs.
before=$(property h2 bgp-client MainPID)
in_host h2 sh -c 'dpkg -i /packages/cambric-bgp-client_*.deb' >/mnt/h2/dpkg.log 2>&1 ||
    fail "an upgrade: $(cat /mnt/h2/dpkg.log)"
await 'a restart by an upgrade' is_new h2 bgp-client "$before"
routes

# A host of an earlier version is upgraded while the datastore is away: the routes stay, also those of the
# datastore, and operators keep their access.
boot h4 10.0.0.4
former h4 cambric cambric-bgp-client cambric-felix
install_packages h4 /former cambric cambric-bgp-client cambric-felix
cd /mnt/h4/root/etc/cambric
printf '[guard]\nports = [1790]\n[[neighbor]]\naddress = "10.0.0.3"\nasn = 64512\n' >>bgp-client.toml
sed -i 's|^router_id = .*|router_id = "10.0.0.4"|' bgp-client.toml
sed -i 's|^endpoints = .*|endpoints = ["http://10.0.0.1:2379"]|' felix.toml
mkdir -m 755 /mnt/h4/root/srv/former
for daemon in bgp-client felix; do
    { echo "control = \"/run/cambric/$daemon.sock\""; cat "$daemon.toml"; } >"/mnt/h4/root/srv/former/$daemon.toml"
done
cd /
in_host h4 chgrp -R cambric /srv/former
in_host h4 useradd --user-group --groups cambric oncall
in_host h4 ip link set lo up
in_host h4 ip link add cali0 type veth peer name workload0
in_host h4 ip link set cali0 up
in_host h4 ip link set workload0 up
in_host h4 systemctl enable --quiet --now cambric-bgp-client cambric-felix || fail 'start of an earlier version'
await_former
await 'the route of h4, by Felix' has_route h4 80 '10.65.1.4 dev cali0'
await 'the same on another host' has_route h2 119 '10.65.1.4 via 10.0.0.4'
await 'a snapshot of the earlier version' in_host h4 test -s /var/lib/cambric/felix.snapshot
! restarted || fail 'the first start is a restart'

# A socket in the former directory is refused before anything changes, and so is a drop-in that gives the
# directory of Felix to another user.
is_refused() {
    ! in_host h4 sh -c 'dpkg -i --force-confold "/packages/cambric-$0"_*.deb' "$1" >/mnt/h4/dpkg.log 2>&1 ||
        fail "an upgrade of $1 with $2"
    grep "cambric-$1 is not upgraded, and the running version stays" /mnt/h4/dpkg.log | grep -qF "$2" ||
        fail "$(cat /mnt/h4/dpkg.log)"
    await_former
}
sed -i '1i control = "/run/cambric/felix.sock"' /mnt/h4/root/etc/cambric/felix.toml
is_refused felix 'felix.toml is in /run/cambric'
sed -i 1d /mnt/h4/root/etc/cambric/felix.toml
drop_in=/mnt/h4/root/etc/systemd/system/cambric-bgp-client.service.d
mkdir -p "$drop_in"
printf '[Service]\nRuntimeDirectory=cambric calico\n' >"$drop_in/bird.conf"
is_refused bgp-client RuntimeDirectory=calico
rm -r "$drop_in"
in_host h1 systemctl stop cambric-store

upgrade() {
    watch_routes h2
    install_packages h4 /packages cambric cambric-bgp-client cambric-felix
    await_own
    carried
    keeps_routes h2 'an upgrade'
}
upgrade
for daemon in bgp-client felix; do
    as h4 oncall cambric show status --socket "/run/cambric-$daemon/$daemon.sock" >/dev/null ||
        fail "an operator of the earlier version does not use the socket of $daemon"
    denied h4 nobody "$daemon"
done
isolated h4 bgp-client felix
isolated h4 felix bgp-client
[ "$(in_host h4 readlink /var/lib/cambric/felix.snapshot)" = ../cambric-felix/felix.snapshot ] ||
    fail 'the snapshot that the configuration names'
[ "$(in_host h4 stat -c '%U %a' /var/lib/cambric)" = 'root 755' ] || fail 'the owner of /var/lib/cambric'
[ ! -e "/proc/$(cat /mnt/h4/pid)/root/run/cambric" ] || fail '/run/cambric is left'

# A downgrade as on the page about upgrades, and an upgrade again.
watch_routes h2
in_host h4 sh -c 'install -d /run/cambric
    cp /run/cambric-bgp-client/bgp-client.restart /run/cambric/
    cp --remove-destination /var/lib/cambric-felix/felix.snapshot /var/lib/cambric/' || fail 'copies of the data'
install_packages h4 /former cambric cambric-bgp-client cambric-felix
await_former
carried
keeps_routes h2 'a downgrade'
upgrade
in_host h4 rm -r /former

# A link of the former user gives away no file of root. A file of that user is moved.
in_host h4 install -d -o cambric /run/cambric /var/lib/cambric
as h4 cambric ln -s /etc/shadow /run/cambric/felix.restart
as h4 cambric sh -c 'echo data >/run/cambric/bgp-client.restart'
in_host h4 sh -c 'rm /var/lib/cambric/felix.snapshot && ln /etc/hostname /var/lib/cambric/felix.snapshot'
before=$(in_host h4 stat -c '%n %U:%G %a' /etc/shadow /etc/hostname)
for daemon in felix bgp-client; do in_host h4 "/usr/lib/cambric-$daemon/carry-over" "$daemon"; done
[ "$(in_host h4 stat -c '%n %U:%G %a' /etc/shadow /etc/hostname)" = "$before" ] || fail 'a link has given a file away'
in_host h4 sh -c 'for file in /run/cambric-felix/felix.restart /var/lib/cambric-felix/felix.snapshot /run/cambric; do
    [ ! -e $file ] && [ ! -L $file ] || exit 1
done' || fail 'a link is carried over'
as h4 cambric-bgp-client grep -qx data /run/cambric-bgp-client/bgp-client.restart ||
    fail 'a file of the former user is not carried over'
[ "$(in_host h4 stat -c %U:%G /run/cambric-bgp-client/bgp-client.restart)" = cambric-bgp-client:cambric-bgp-client ] ||
    fail 'a file that is carried over has another owner'
in_host h1 systemctl start cambric-store

# A stop of the unit drains nothing while the machine runs, and neither does a restart of the daemon.
install_packages h4 /packages cambric-bfd
printf 'bfd = { multiplier = 100 }\n' >>/mnt/h4/root/etc/cambric/bgp-client.toml
start_bfd h4
in_host h4 systemctl reload cambric-bgp-client || fail 'a reload with BFD'
await 'a BFD session of h4' has_session h4 10.0.0.3
drop_in=/mnt/h4/root/etc/systemd/system/cambric-drain.service.d
mkdir -p "$drop_in"
printf '[Service]\nStandardOutput=append:/var/lib/drain.log\n' >"$drop_in/log.conf"
in_host h4 systemctl daemon-reload
in_host h4 systemctl enable --quiet --now cambric-drain || fail 'start of cambric-drain'
in_host h4 systemctl restart cambric-drain || fail 'restart of cambric-drain'
before=$(property h4 bgp-client MainPID)
ends_of_h4() { in_host h3 journalctl --quiet --output=cat "CAMBRIC_EVENT=$1" | grep -F 10.0.0.4; }
number_of() { ends_of_h4 "$1" | wc -l; }
has_more() { [ "$(number_of "$1")" -gt "$2" ]; }
earlier=$(number_of session.established)
in_host h4 systemctl restart cambric-bgp-client
await 'the BGP client of h4 after a restart' is_new h4 bgp-client "$before"
# Its route alone shows no session: it is also retained as stale.
await 'the session of h4 after a restart' has_more session.established "$earlier"
await 'the route of h4 after a restart' has_route h2 119 '10.65.1.4 via 10.0.0.4'
! in_host h4 journalctl --quiet --output=cat CAMBRIC_EVENT=node.drain_started | grep -q . ||
    fail 'h4 is drained while its machine runs'

# A shutdown drains first, then closes the session of BGP, then ends that of BFD. The packets of h4 have this
# order: the lines of two daemons in the journal of a loaded host may have another one.
await 'a BFD session of h4 after a restart' has_session h3 10.0.0.4
sent=/mnt/h4/sent
tshark -Q -l -i port-h4 -f 'src host 10.0.0.4 and (tcp port 179 or udp port 3784)' \
    -Y 'bgp.type == 3 or bfd' -T fields -E occurrence=l -e bgp.type -e bfd.sta >"$sent" 2>/mnt/h4/tshark.log &
tshark=$!
await 'a packet of BFD of h4' test -s "$sent"
earlier=$(number_of session.closed)
earlier_downs=$(number_of bfd.session_down)
in_host h4 systemctl poweroff || true
is_off() { ! kill -0 "$(cat /mnt/h4/pid)" 2>/dev/null; }
await 'the end of h4' is_off
await 'the end of the BGP session of h4' has_more session.closed "$earlier"
has_no_session() { ! has_session "$@"; }
await 'the end of the BFD session of h4' has_no_session h3 10.0.0.4
ends_of_h4 session.closed | tail -n 1 | grep -q 'received .*Administrative Shutdown' ||
    fail "the BGP session of h4 ends otherwise: $(ends_of_h4 session.closed)"
ends_after() { ends_of_h4 bfd.session_down | tail -n "+$((earlier_downs + 1))"; }
! ends_after | grep -v disabled || fail 'the shutdown of h4 is a failure for its neighbor'
# Of its last packets, the NOTIFICATION (type 3) precedes the first one of BFD in AdminDown (state 0).
last_packets() { sed -n 's/^3\t.*/closed/p; s/^\t0x0*$/disabled/p' "$sent" | uniq | tr '\n' ' '; }
is_disabled() { last_packets | grep -q disabled; }
await 'AdminDown of h4' is_disabled
kill "$tshark" 2>/dev/null || true
wait "$tshark" || true
[ "$(last_packets)" = 'closed disabled ' ] || fail "h4 sends at its end: $(last_packets)"
grep -q '^this node is drained since' /mnt/h4/upper/var/lib/drain.log || fail 'h4 is not drained at its shutdown'
hosts=${hosts% h4}

for host in $hosts; do purged "$host"; done
echo 'the packages install, systemd runs their daemons as the units require, and they route'
