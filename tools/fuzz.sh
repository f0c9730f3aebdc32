#!/bin/sh
# Fuzzes every target for SECONDS each (default 30) with libFuzzer, on the stable compiler; from a SEED,
# or from another one each time (default).
# New inputs go to target/fuzz/corpus; a crash is kept in target/fuzz/artifacts and fails the run.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-30} seed=${2:-0}

command -v c++ >/dev/null || { echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2; exit 1; }

flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
flags="$flags -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="$flags" cargo build --release --locked -p fuzz --features libfuzzer --target "$host" \
    --target-dir target/fuzz

for target in message attributes session speaker stored; do
    mkdir -p "target/fuzz/corpus/$target" "target/fuzz/artifacts"
    echo "fuzzing $target for $seconds s"
    "target/fuzz/$host/release/fuzz-$target" "target/fuzz/corpus/$target" "fuzz/corpus/$target" \
        -seed="$seed" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="target/fuzz/artifacts/$target-" -verbosity=0 2>&1 |
        tail -n 40 | tee "target/fuzz/$target.log" | grep -E 'ERROR|panicked|stat::number|artifact' || true
    ! grep -qE 'ERROR: libFuzzer|panicked' "target/fuzz/$target.log" || exit 1
done
