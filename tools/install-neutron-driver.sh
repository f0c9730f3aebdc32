#!/bin/sh
# Installs Neutron's driver for Calico, for the lab of OpenStack, beside what cargo builds: nothing
# of the machine is changed. At once when it is there already. It was last published for Python 2;
# Python's own 2to3 translates it.
set -eu

target=${CARGO_TARGET_DIR:-"$(dirname "$0")/../target"}/networking-calico
stamp=$target/translated-3.12.0
[ ! -e "$stamp" ] || exit 0

# Debian's python, as its python3-neutron is for that one. The driver's own dependencies are left
# out: they are Debian's packages.
python=/usr/bin/python3
for module in pip lib2to3; do
    if ! "$python" -W ignore -c "import $module" 2>/dev/null; then
        echo "make test needs this package of Debian: apt-get install python3-$module" >&2
        exit 1
    fi
done
echo "installing for the tests: networking-calico in $target"
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
echo 'networking-calico==3.12.0 --hash=sha256:15d5cc20a5c542034695e312312e2524289eb81687d75428cf8985eb37c55e34' >"$wanted"
rm -rf "$target"
"$(dirname "$0")/insist.sh" \
    "$python" -m pip install --quiet --retries 10 --timeout 60 --disable-pip-version-check \
    --root-user-action=ignore --no-deps --only-binary=:all: --no-compile --require-hashes \
    --target "$target" -r "$wanted"
"$python" -W ignore -m lib2to3 --write --nobackups --no-diffs "$target/networking_calico" >"$wanted" 2>&1 || {
    cat "$wanted" >&2
    exit 1
}
"$python" -m compileall -q "$target/networking_calico"
touch "$stamp"
