#!/bin/sh
# Run pytest with the arguments given, against a build with the address and undefined-behaviour sanitizers.
set -eu
cd "$(dirname "$0")/.."
echo "sanitize: building into build/sanitize"
rm -rf build/sanitize/package
ROCKETC_SANITIZE=1 .venv/bin/python setup.py --quiet build --build-lib build/sanitize/package
package=$PWD/build/sanitize/package
cc=${CC:-cc}
preload="$($cc -print-file-name=libasan.so) $($cc -print-file-name=libubsan.so)"
# Python keeps memory to its end: no leak reports. Its own allocator would hide our overruns: malloc instead.
exec env LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
    PYTHONPATH="$package" ROCKETC_TEST_PACKAGE="$package/rocketc" .venv/bin/pytest -p no:cacheprovider "$@"
