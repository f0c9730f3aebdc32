#!/bin/sh
# Installs Neutron's driver for Calico, for the lab of OpenStack, beside what cargo builds: nothing
# of the machine is changed. At once when it is there already.
set -eu

target=${CARGO_TARGET_DIR:-"$(dirname "$0")/../target"}/networking-calico
[ ! -d "$target/networking_calico-3.12.0.dist-info" ] || exit 0

# Debian's python, as its python3-neutron is for that one. The driver's own dependencies are left
# out: they are Debian's packages.
python=/usr/bin/python3
if ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "make test needs this package of Debian: apt-get install python3-pip" >&2
    exit 1
fi
echo "installing for the tests: networking-calico in $target"
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
echo 'networking-calico==3.12.0 --hash=sha256:15d5cc20a5c542034695e312312e2524289eb81687d75428cf8985eb37c55e34' >"$wanted"
rm -rf "$target"
"$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --no-deps --only-binary=:all: --no-compile --require-hashes --target "$target" -r "$wanted"
