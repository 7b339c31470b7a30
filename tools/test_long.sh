#!/bin/sh
# The stages of `make test-long`: tools/test_long.sh "STAGE ..." TESTS PROCESSES [OPTION...]; OPTIONs are passed to pytest.
#   long      the long tests
#   measure   the long tests that measure time or memory, one at a time
#   property  the property tests, with more examples than `make test` has
#   spark     the tests of Spark with each older version of Spark
#   sanitize  all fast tests, under the address and undefined-behavior sanitizers
#   fuzz      every fuzz target, for some seconds
# If a stage fails, the others still run; the failed stages are listed at the end.
set -u
cd "$(dirname "$0")/.."
stages=$1 tests=$2 processes=$3
shift 3
python=.venv/bin/python
counts=build/counts/long
shared="--numprocesses $processes --dist loadscope"
failed=""

# stage NAME COMMAND...: run a selected stage. Not failures: pytest's 5 (no test found), the fuzzer's 3 (not available here).
stage() {
    name=$1
    shift
    case " $stages " in *" $name "*) ;; *) return 0 ;; esac
    echo "test-long: $name"
    "$@"
    code=$?
    [ $code = 130 ] && exit 130
    case "$name $code" in *" 0" | "fuzz 3" | [!f]*" 5") ;; *) failed="$failed $name" ;; esac
}

with_counts() { ROCKETC_COUNTS=$counts $python -m pytest "$@"; }

older_spark() {
    version=$1
    shift
    tools/setup.sh spark "$version" || return 1
    echo "test-long: with Spark $version"
    PYTHONPATH=$PWD/build/spark-$version $python -m pytest "$@"
}

for name in $stages; do
    case $name in
    long | measure | property | spark | sanitize | fuzz) ;;
    *) echo "test-long: unknown stage $name; the stages are long, measure, property, spark, sanitize, fuzz" >&2; exit 2 ;;
    esac
done
tools/setup.sh valgrind || exit 1
tools/setup.sh docs || exit 1
tools/setup.sh strace || true
tools/setup.sh arm64 || exit 1
case " $stages " in *" long "*) rm -rf $counts; tools/setup.sh workers || true; tools/setup.sh cpp_client || true ;; esac
# shellcheck disable=SC2086
{
    stage long with_counts $tests -m "long and not measure" $shared "$@"
    stage measure with_counts $tests -m "long and measure" "$@"
    HYPOTHESIS_PROFILE=long stage property with_counts $tests -m "hypothesis and not long" $shared "$@"
    for version in 3.5 4.0 4.1; do
        stage spark older_spark $version $tests -m "spark and not long" "$@"
    done
    stage sanitize tools/sanitize.sh $tests -m "not (spark or long or measure)" $shared "$@"
    stage fuzz tools/fuzz.sh 20
}
PYTHONPATH=tests $python -m support.promise_table || failed="$failed promises"
[ -z "$failed" ] && exit 0
echo "test-long: failed:$failed" >&2
exit 1
