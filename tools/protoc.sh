#!/bin/sh
# The protobuf compiler that build scripts run (PROTOC in .cargo/config.toml).
#
# Uses the machine's protoc when one is on PATH. Otherwise builds the stand-in in tools/protoc,
# once, into target/protoc, and runs that. Safe to run many times at once: cargo's own lock
# serializes the build, and the finished program is moved into place in one step.
set -eu

# A build script may run with next to nothing on PATH, and need not be started from here.
PATH="${PATH:-}${PATH:+:}/usr/local/bin:/usr/bin:/bin"
case "${CARGO:-}" in */*) PATH="$PATH:${CARGO%/*}" ;; esac
[ -z "${HOME:-}" ] || PATH="$PATH:$HOME/.cargo/bin"
export PATH

if real=$(command -v protoc); then
    exec "$real" "$@"
fi

case "$0" in */*) tools=${0%/*} ;; *) tools=. ;; esac
tools=$(CDPATH='' cd -- "$tools" && pwd)
crate="$tools/protoc"
out="${tools%/*}/target/protoc"
program="$out/bin/protoc"

fresh() {
    [ -x "$program" ] || return 1
    for input in "$crate/Cargo.toml" "$crate/Cargo.lock" "$crate/src/main.rs"; do
        [ "$program" -nt "$input" ] || return 1
    done
}

# Variables that the calling cargo set for its own build must not affect this one: a target, flags or a
# linting wrapper meant for the product would give a different program every time.
build() (
    cargo=${CARGO:-cargo}
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR CARGO_BUILD_RUSTFLAGS \
        CARGO_BUILD_TARGET_DIR CARGO_BUILD_BUILD_DIR RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER \
        CARGO_ENCODED_RUSTDOCFLAGS TARGET LLVM_PROFILE_FILE || true
    mkdir -p "$out/bin"
    cd "$crate"
    "$cargo" build --release --locked --quiet --target-dir "$out" >&2
    cp "$out/release/protoc" "$program.$$"
    mv -f "$program.$$" "$program"
)

if ! fresh; then
    echo "protoc not found: building the stand-in in tools/protoc (once)" >&2
    build || {
        echo "could not build tools/protoc; installing protoc (Debian: protobuf-compiler) works too" >&2
        exit 1
    }
fi
exec "$program" "$@"
