#!/bin/sh
# Run pytest with the given arguments against a build with sanitizers: address and undefined behavior, or, with
# --thread as the first argument, the thread sanitizer.
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
    # Python is not instrumented: the sanitizer sees only its locks. A forked child continues.
    preload=$($cc -print-file-name=libtsan.so)
    export TSAN_OPTIONS="die_after_fork=0 report_signal_unsafe=0 exitcode=66 suppressions=$PWD/tools/tsan.txt ${TSAN_OPTIONS:-}"
else
    preload="$($cc -print-file-name=libasan.so) $($cc -print-file-name=libubsan.so)"
fi
# PYTHONSAFEPATH: without it, `python -c` in a test imports the package of this folder.
# No leak reports, because Python keeps memory until it exits. Its allocator would hide overruns, so it uses malloc.
exec env LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
    PYTHONSAFEPATH=1 PYTHONPATH="$package" ROCKETC_TEST_PACKAGE="$package/rocketc" .venv/bin/pytest -p no:cacheprovider "$@"
