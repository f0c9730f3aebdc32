#!/bin/sh
# Becomes process 1 of a host of tools/package-lab.sh: a systemd that has this machine's files under
# an overlay, and nothing else of this machine. It is to run in new namespaces of every kind but
# user, as `package-host.sh DIRECTORY`: DIRECTORY/root is the overlay, and its name is the host's.
set -eu
root=$1/root

mount --make-rprivate /
# The settings of the network are the host's own; whatever else is below /proc/sys and /sys is not.
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in 'null 1 3' 'zero 1 5' 'full 1 7' 'random 1 8' 'urandom 1 9' 'tty 5 0'; do
    # shellcheck disable=SC2086  # name, major, minor
    set -- $device
    mknod -m 666 "$root/dev/$1" c "$2" "$3"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
for directory in run tmp var/log; do mount -t tmpfs -o mode=755 tmpfs "$root/$directory"; done
chmod 1777 "$root/tmp"

cd "$root"
pivot_root . mnt
umount -l /mnt
# In a container, systemd takes its arguments as it would take a kernel's; basic.target leaves out
# what a machine is for.
exec env -i container=lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=basic.target
