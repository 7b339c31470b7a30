#!/bin/sh
# What `make test-long` does, stage by stage: tools/test_long.sh "STAGE ..." TESTS PROCESSES [OPTION...]; OPTIONs go to pytest.
#   long      the long tests
#   measure   those of them that look at time or memory: one at a time
#   spark     the tests of Spark with each older one
#   sanitize  all that is fast, under the address and undefined-behaviour sanitizers
#   fuzz      every fuzz target for some seconds
# A stage that fails does not keep the others from saying what they have to say; at the end each is named that did.
set -u
cd "$(dirname "$0")/.."
stages=$1 tests=$2 processes=$3
shift 3
python=.venv/bin/python
counts=build/counts/long
shared="--numprocesses $processes --dist loadscope"
failed=""

# stage NAME COMMAND...: run it if it is asked for. pytest's 5: there is no such test; the fuzzer's 3: it can't be had here.
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
    long | measure | spark | sanitize | fuzz) ;;
    *) echo "test-long: there is no stage $name; there are long, measure, spark, sanitize, fuzz" >&2; exit 2 ;;
    esac
done
tools/setup.sh valgrind || exit 1
tools/setup.sh docs || exit 1
tools/setup.sh strace || true
tools/setup.sh arm64 || exit 1
case " $stages " in *" long "*) rm -rf $counts ;; esac
# shellcheck disable=SC2086
{
    stage long with_counts $tests -m "long and not measure" $shared "$@"
    stage measure with_counts $tests -m "long and measure" "$@"
    for version in 4.0 4.1; do
        stage spark older_spark $version $tests -m "spark and not long" "$@"
    done
    stage sanitize tools/sanitize.sh $tests -m "not (spark or long or measure)" $shared "$@"
    stage fuzz tools/fuzz.sh 20
}
PYTHONPATH=tests $python -m support.promise_table || failed="$failed promises"
[ -z "$failed" ] && exit 0
echo "test-long: failed:$failed" >&2
exit 1
