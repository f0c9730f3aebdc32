#!/bin/sh
# Moves the data of a daemon for its next start into the daemon's own directories, and removes its other
# files there. Earlier versions had one user, cambric, and the directories /run/cambric and
# /var/lib/cambric for all daemons. The unit runs this as root before each start, when the former daemon
# has stopped and written its last data: carry-over DAEMON
set -u
daemon=$1 user=cambric-$1
run=/run/cambric state=/var/lib/cambric

# Moves a file, which the former user could have replaced by a link: only a file with one name and that
# owner gets the new owner. Links are removed or moved, not followed.
carry() {
    if [ -L "$1" ]; then rm -f -- "$1"; fi
    if [ ! -f "$1" ]; then return; fi
    mv -fT -- "$1" "$2" || return
    case "$(stat -c '%F:%h:%U' -- "$2")" in
    'regular file:1:cambric' | 'regular empty file:1:cambric') chown -h "$user:$user" -- "$2" ;;
    *) rm -f -- "$2" ;;
    esac
}

carry "$run/$daemon.restart" "/run/$user/$daemon.restart"
for suffix in sock guard guard-new restart-new; do rm -f "$run/$daemon.$suffix"; done

# A configuration that names a file of the former directory remains valid by a link, which the daemon
# follows.
named=$(sed -n "s|^[^#]*[\"']$state/\([A-Za-z0-9._-]*\)[\"'].*|\1|p" "/etc/cambric/$daemon.toml" 2>/dev/null)
for name in $named "$daemon.snapshot"; do
    carry "$state/$name" "/var/lib/$user/$name"
    rm -f "$state/$name.new"
    case " $named " in
    *" $name "*)
        mkdir -p -m 755 "$state"
        ln -sfT "../$user/$name" "$state/$name"
        ;;
    *) [ ! -L "$state/$name" ] || rm -f "$state/$name" ;;
    esac
done

# While an earlier version of another daemon runs, it writes in these directories.
if [ -z "$(find /proc -maxdepth 1 -user cambric -print -quit 2>/dev/null)" ]; then
    for directory in "$run" "$state"; do
        [ -d "$directory" ] || continue
        rmdir --ignore-fail-on-non-empty "$directory"
        [ ! -d "$directory" ] || { chown -h root:root "$directory" && chmod 755 "$directory"; }
    done
fi
exit 0
