#!/bin/sh
# The steps of `make setup`. Each prints one line about its work, and writes a stamp that make compares with its sources.
#   tools/setup.sh tools PYTHON       tools of the system; as root on Debian they are installed, otherwise reported
#   tools/setup.sh packages PYTHON    .venv with the versions of requirements-dev.lock
#   tools/setup.sh editable           the rocketc package and command in .venv, as links to this folder
#   tools/setup.sh extensions WORD    the extension modules, next to the Python files; WORD is written to the stamp
#   tools/setup.sh valgrind           valgrind, for instruction counts
#   tools/setup.sh peers              the peers of the benchmarks: in .venv, Redis, and NATS in build/bench-peers
#   tools/setup.sh docs               the tools for the site, in .venv
#   tools/setup.sh spark 3.5          the last PySpark of that version in build/spark-3.5, for PYTHONPATH
#   tools/setup.sh workers            gunicorn, Celery and Jupyter's kernel in build/workers, for PYTHONPATH
#   tools/setup.sh cpp_client         RocketMQ's C++ client (PyPI rocketmq) in build/cpp-client, for PYTHONPATH
#   tools/setup.sh strace             strace, for tests that are killed at each system call; they are skipped without it
#   tools/setup.sh fuzz               clang, and libFuzzer for Python in build/fuzz/tool
#   tools/setup.sh arm64              a compiler and an emulator, to test code for arm64
set -eu
cd "$(dirname "$0")/.."
SECONDS_BETWEEN=${ROCKETC_SECONDS_BETWEEN:-5}  # of lines that say how far a step is
say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# need WHAT DEBIAN-PACKAGES MACOS-COMMAND TEST...: run TEST; if it fails, install the packages, or print how to do it.
need() {
    what=$1 packages=$2 macos=$3
    shift 3
    "$@" >/dev/null 2>&1 && return 0
    if [ "$(uname -s)" = Darwin ]; then
        fail "$what is missing; install it with: $macos"
    elif ! command -v apt-get >/dev/null 2>&1; then
        fail "$what is missing; install it with your system's package manager (on Debian: $packages)"
    elif [ "$(id -u)" != 0 ]; then
        fail "$what is missing; install it with: sudo apt-get install $packages"
    fi
    say "$what is missing: installing $packages"
    log=$(mktemp)
    # shellcheck disable=SC2086
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } \
        >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; fail "apt-get could not install $packages"; }
    rm -f "$log"
    "$@" >/dev/null 2>&1 || fail "$what is still missing after installing $packages"
}

# pip_install ARGUMENT...: install into .venv. Says every few seconds which package pip is at; shows all output only if it fails.
pip_install() {
    log=$(mktemp)
    { PYTHONUNBUFFERED=1 .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 &&
        echo "setup: done"; } | tee "$log" | awk -v seconds="$SECONDS_BETWEEN" '
        /^(Collecting|Requirement already satisfied:)/ {
            count++
            "date +%s" | getline now
            close("date +%s")
            if (!last) last = now
            if (now - last >= seconds) {
                print "setup: package " count ": " ($1 == "Collecting" ? $2 : $4)
                fflush()
                last = now
            }
        }
        /^Installing collected packages/ { print "setup: installing " count " packages"; fflush() }'
    if [ "$(tail -n 1 "$log")" != "setup: done" ]; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

new_enough_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }
can_make_venv() { "$1" -c 'import ensurepip, venv'; }
c_compiler() { command -v "${CC:-cc}" && echo 'int main(void){return 0;}' | "${CC:-cc}" -x c -o /dev/null -; }
python_headers() { "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; }
java_17() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

tools() {
    python=$1
    need "Python" "python3" "brew install python" command -v "$python"
    new_enough_python "$python" || fail "$("$python" --version) is too old; rocketc needs 3.10: make setup PYTHON=python3.12"
    debian_python=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    need "the venv module of $python" "$debian_python-venv" "brew reinstall python" can_make_venv "$python"
    need "a C compiler" "gcc libc6-dev" "xcode-select --install" c_compiler
    need "Python.h of $python" "$debian_python-dev" "brew reinstall python" python_headers "$python"
    need "Java 17 or newer (for Spark)" "default-jre-headless" "brew install openjdk@17" java_17
    mkdir -p .venv
    touch .venv/.tools
}

packages() {
    python=$1
    if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
        say "creating .venv with $("$python" --version)"
        "$python" -m venv .venv
    fi
    say "installing the packages of requirements-dev.lock into .venv (takes minutes the first time)"
    pip_install -r requirements-dev.lock
    touch .venv/.packages
}

editable() {
    say "installing rocketc into .venv, as links to this folder"
    ROCKETC_MODULES=none .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
        --config-settings editable_mode=compat --editable .
    touch .venv/.editable
}

# count_modules: say how many modules were translated and compiled since build/.begun, at most every few seconds, and only if
# that has changed. setup.py does not say it: a change of it builds everything again.
count_modules() {
    all=$(find pyx -name '_*.pyx' | wc -l)
    said="0 modules translated to C, 0 compiled, of at most $((all))"
    while sleep "$SECONDS_BETWEEN"; do
        translated=$(find build -name '_*.c' -newer build/.begun | wc -l)
        compiled=$(find build -name '_*.o' -newer build/.begun | wc -l)
        text="$((translated)) modules translated to C, $((compiled)) compiled, of at most $((all))"
        [ "$text" = "$said" ] || say "$text"
        said=$text
    done
}

extensions() {
    mkdir -p build
    # Two builds in one folder would write the same files.
    if command -v flock >/dev/null 2>&1; then
        exec 9>build/.lock
        flock 9
    fi
    say "building the extension modules${1:+ ($1)} (takes minutes the first time)"
    # Remove the .so of a moved or removed module, which would stay importable.
    find rocketc -name '_*.so' | while read -r so; do
        [ -e "pyx/${so%%.*}.pyx" ] || rm -f "$so"
    done
    : >build/.begun
    count_modules &
    counter=$!
    trap 'kill $counter 2>/dev/null || true' EXIT
    trap 'exit 130' INT TERM
    .venv/bin/python setup.py --quiet build_ext --inplace --parallel "$(getconf _NPROCESSORS_ONLN)"
    printf '%s' "$1" >build/.extensions
}

valgrind() {
    need "valgrind" "valgrind" "(not available on macOS; use Linux)" env valgrind --version  # not the function
}

strace() {
    [ "$(uname -s)" = Linux ] || return 0
    need "strace" "strace" "" env strace --version
}

peers() {
    pip_install -r requirements-bench.lock ||
        say "the peers can't be installed here: the benchmarks leave out their rows"
    # redis-tools has the server, too, as redis-check-rdb; the package redis-server would start one.
    (need "Redis" "redis-tools" "brew install redis" command -v redis-benchmark) ||
        say "without Redis the benchmarks leave out its rows"
    [ -x build/bench-peers/nats ] && return 0
    if command -v go >/dev/null 2>&1; then
        say "installing NATS into build/bench-peers (takes minutes)"
        mkdir -p build/bench-peers
        GOBIN="$PWD/build/bench-peers" go install github.com/nats-io/nats-server/v2@v2.15.2 >/dev/null 2>&1 &&
            GOBIN="$PWD/build/bench-peers" go install github.com/nats-io/natscli/nats@v0.5.1 >/dev/null 2>&1 && return 0
    fi
    say "NATS can't be installed here: the benchmarks leave out its rows"
}

docs() {
    .venv/bin/python -c 'import material, mkdocs, mkdocstrings_handlers.python' >/dev/null 2>&1 && [ .venv/.docs -nt requirements-docs.lock ] && return 0
    say "installing the packages of requirements-docs.lock into .venv"
    pip_install -r requirements-docs.lock ||
        fail "mkdocs and mkdocs-material can't be installed here, but the site needs them: see requirements-docs.lock"
    touch .venv/.docs
}

spark() {
    [ -d "build/spark-$1/pyspark" ] && return 0
    say "installing Spark $1 into build/spark-$1"
    rm -rf "build/spark-$1"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "build/spark-$1.new" "pyspark==$1.*"
    mv "build/spark-$1.new" "build/spark-$1"
}

workers() {
    [ build/workers -nt requirements-workers.lock ] && return 0
    say "installing gunicorn, Celery and the kernel of Jupyter into build/workers"
    rm -rf build/workers build/workers.new
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --target build/workers.new -r requirements-workers.lock ||
        fail "these servers can't be installed here: their tests are skipped"
    touch build/workers.new
    mv build/workers.new build/workers
}

cpp_client() {
    [ -d build/cpp-client ] && return 0
    say "installing RocketMQ's C++ client into build/cpp-client"
    rm -rf build/cpp-client.new
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
        --target build/cpp-client.new "rocketmq==0.4.4" ||
        fail "the C++ client has no wheel for this system: its test is skipped"
    mv build/cpp-client.new build/cpp-client
}

fuzz() {
    [ "$(uname -s)" = Linux ] || fail "fuzzing needs Linux: atheris has no wheels for other systems"
    need "clang" "clang llvm" "" command -v clang
    [ -d build/fuzz/tool ] && return 0
    say "installing atheris (libFuzzer for Python) into build/fuzz/tool"
    rm -rf build/fuzz/tool.new
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
        --target build/fuzz/tool.new "atheris==3.*" ||
        fail "atheris has no wheel for $(.venv/bin/python --version) on $(uname -m); use another Python: make setup PYTHON=python3.12"
    mv build/fuzz/tool.new build/fuzz/tool
}

arm64() {
    [ "$(uname -m)" = x86_64 ] && [ "$(uname -s)" = Linux ] || return 0
    need "a compiler for arm64" "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" "" command -v aarch64-linux-gnu-gcc
    need "an emulator of arm64" "qemu-user" "" command -v qemu-aarch64
}

"$@"
