#!/bin/sh
# Makes the Debian packages out of the programs of a profile (release, or the one that is named):
# target/debian/*.deb. `make build` first.
#
# cargo-deb is installed when it is missing, once; hardly optimized, as it is to be soon compiled.
set -eu
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"
version=3.8.0 profile=${1:-release}

if ! command -v cargo-deb >/dev/null; then
    echo "installing cargo-deb $version" >&2
    CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=false \
        tools/insist.sh "$CARGO" install -q --locked --debug "cargo-deb@$version"
fi
target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target/debian"
rm -f "$target"/debian/cambric*.deb
for package in cambric-cli cambric-bfd-daemon cambric-bgp-client cambric-route-reflector cambric-felix cambric-cni cambric-kube-controller; do
    "$CARGO" deb -q --no-build --profile "$profile" -p "$package" -o "$target/debian/"
done
ls "$target"/debian/cambric*.deb
