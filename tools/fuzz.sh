#!/bin/sh
# Fuzz the readers, guided by coverage, under the address and undefined-behavior sanitizers; see tests/README.md.
#   tools/fuzz.sh SECONDS [TARGETS] [INPUT]
#   SECONDS  time per target
#   TARGETS  names in tests/fuzz/targets.py, separated by blanks; empty: all
#   INPUT    a file: run only this input, with one target
# Exit code 1: an error was found. 3: a tool is not available here.
set -eu
cd "$(dirname "$0")/.."
seconds=$1 targets=${2:-} input=${3:-}
out=build/fuzz

tools/setup.sh fuzz || exit 3
echo "fuzz: building the extension modules into $out"
CC=clang ROCKETC_SANITIZE=fuzz .venv/bin/python setup.py --quiet build --parallel "$(getconf _NPROCESSORS_ONLN)" \
    --build-lib $out/package
[ -n "$targets" ] || targets=$(sed -n 's/^    "\(.*\)": Target(.*/\1/p' tests/fuzz/targets.py)
mkdir -p $out/findings
TMPDIR=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/fuzz.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

# The switches are those of tools/sanitize.sh; rocketc handles SIGBUS itself.
run() {
    env LD_PRELOAD="$PWD/$out/tool/asan_with_fuzzer.so" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 \
        UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONSAFEPATH=1 \
        PYTHONPATH="$PWD/$out/package:$PWD/$out/tool:$PWD/tests" \
        .venv/bin/python -m fuzz.run "$@" -handle_bus=0 -timeout=30 -rss_limit_mb=3072 -malloc_limit_mb=1024
}

if [ -n "$input" ]; then
    run "$targets" "$input"
    exit
fi

found=0
for target in $targets; do
    mkdir -p $out/corpus/"$target"
    log=$out/$target.log
    seeds=tests/fuzz/corpus/$target
    [ ! -d "tests/fuzz/findings/$target" ] || seeds="$seeds tests/fuzz/findings/$target"
    # shellcheck disable=SC2086
    if run "$target" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$out/findings/$target-" \
        $out/corpus/"$target" $seeds >"$log" 2>&1; then
        inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        reached=$(sed -n 's/^#.* cov: \([0-9]*\) .* corp: \([0-9]*\).*/\1 edges, \2 inputs kept/p' "$log" | tail -n 1)
        echo "fuzz: $target: $inputs inputs in $seconds s, $reached"
        continue
    fi
    found=1
    tail -n 60 "$log" >&2
    file=$(sed -n "s|^artifact_prefix=.*Test unit written to \(.*\)|\1|p" "$log" | tail -n 1)
    echo "fuzz: $target: failed, see $log" >&2
    [ -z "$file" ] || echo "fuzz: run it again with: make fuzz TARGETS=$target INPUT=$file" >&2
done
exit $found
