#!/bin/sh
# Run pytest with the arguments given, against a build with sanitizers: those of address and undefined behaviour, or with
# --thread as the first argument the thread sanitizer.
set -eu
cd "$(dirname "$0")/.."
kind=1 folder=build/sanitize
if [ "${1:-}" = --thread ]; then
    shift
    kind=thread folder=build/sanitize-thread
fi
echo "sanitize: building into $folder"
rm -rf $folder/package
ROCKETC_SANITIZE=$kind .venv/bin/python setup.py --quiet build --build-lib $folder/package
package=$PWD/$folder/package
cc=${CC:-cc}
if [ $kind = thread ]; then
    # Python is not instrumented: what it does itself is seen through its locks only. A forked child goes on.
    preload=$($cc -print-file-name=libtsan.so)
    export TSAN_OPTIONS="die_after_fork=0 report_signal_unsafe=0 exitcode=66 suppressions=$PWD/tools/tsan.txt ${TSAN_OPTIONS:-}"
else
    preload="$($cc -print-file-name=libasan.so) $($cc -print-file-name=libubsan.so)"
fi
# PYTHONSAFEPATH: else `python -c`, started by a test, takes the package of this folder.
# Python keeps memory to its end: no leak reports. Its own allocator would hide our overruns: malloc instead.
exec env LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
    PYTHONSAFEPATH=1 PYTHONPATH="$package" ROCKETC_TEST_PACKAGE="$package/rocketc" .venv/bin/pytest -p no:cacheprovider "$@"
