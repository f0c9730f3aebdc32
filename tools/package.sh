#!/bin/sh
# Makes the Debian packages out of the optimised programs: target/debian/*.deb. `make build` first.
#
# cargo-deb is installed when it is missing; that takes about 90 s of CPU, once.
set -eu
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"
version=3.8.0

if ! command -v cargo-deb >/dev/null; then
    echo "installing cargo-deb $version" >&2
    tools/insist.sh "$CARGO" install -q --locked "cargo-deb@$version"
fi
target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target/debian"
rm -f "$target"/debian/cambric*.deb
for package in cambric cambric-bgp-client cambric-route-reflector cambric-felix cambric-cni; do
    "$CARGO" deb -q --no-build ${PROFILE:+--profile "$PROFILE"} -p "$package" -o "$target/debian/"
done
ls "$target"/debian/cambric*.deb
