#!/bin/sh
# Makes the Debian packages out of the programs of a profile (release, or the one that is named):
# target/debian/*.deb. `make build` first. Packages of another profile are only for tests: they are
# compressed less.
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
fast=
[ "$profile" = release ] || fast=--fast
# One process for each core.
printf '%s\n' cambric-cli cambric-bfd-daemon cambric-bgp-client cambric-route-reflector cambric-felix \
    cambric-cni cambric-kube-controller |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' \
        "$CARGO" deb -q --no-build --profile "$profile" $fast -p '{}' -o "$target/debian/" >/dev/null
ls "$target"/debian/cambric*.deb
