#!/bin/sh
# Build dist/: the sdist, and a wheel from it for each of PYTHONS (default: the Python of .venv). The tests of the sdist
# run against each wheel, in a new environment.
#   make dist PYTHONS="python3.10 python3.13" TESTS=tests/unit
set -eu
cd "$(dirname "$0")/.."
work=$PWD/build/dist-check
rm -rf dist "$work"
mkdir -p "$work"

echo "dist: building the sdist"
.venv/bin/python -m build --no-isolation --sdist --outdir dist . >"$work/sdist.log" 2>&1 || { tail -n 30 "$work/sdist.log" >&2; exit 1; }

# Build the wheel for one Python, check its content, and test it.
wheel_for() (
    name=$("$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    here=$work/$name
    mkdir "$here"
    tar -xzf dist/*.tar.gz -C "$here"
    cd "$here"
    mv rocketc-*/ source
    echo "dist: $name: creating an environment"
    "$1" -m venv "$here/venv"
    "$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r source/requirements-dev.lock
    echo "dist: $name: building the wheel"
    "$here/venv/bin/python" -m build --no-isolation --wheel --outdir "$here" source >"$here/wheel.log" 2>&1 ||
        { tail -n 30 "$here/wheel.log" >&2; exit 1; }
    wheel=$(ls "$here"/*.whl)
    cp "$wheel" "$work/../../dist"
    "$here/venv/bin/python" - "$wheel" <<'PYTHON'
import re, sys, zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
wrong = [n for n in names if not re.fullmatch(r"rocketc/(.*\.(py|pyi|so)|py\.typed)|pyspark_rocketmq/__init__\.py|(rocketc_command|pytest_rocketc)\.py|rocketc-[^/]*\.dist-info/.*", n)]
missing = {"rocketc/__init__.py", "rocketc/py.typed", "pyspark_rocketmq/__init__.py", "rocketc_command.py", "pytest_rocketc.py"} - set(names)
if wrong or missing:
    sys.exit(f"dist: wrong files in the wheel: {wrong}; missing files: {sorted(missing)}")
PYTHON
    echo "dist: $name: installing it"
    "$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[arrow,compression,plot,remote,spark]"
    "$here/venv/bin/python" -m pip check
    echo "dist: $name: testing it"
    package=$("$here/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/rocketc
    tests=
    for test in ${TESTS:-tests}; do tests="$tests source/$test"; done
    # Not in the folder of the sources, because programs that tests start would import these.
    # shellcheck disable=SC2086
    env ROCKETC_TEST_PACKAGE="$package" "$here/venv/bin/pytest" -c source/pyproject.toml -m "not long" -p no:cacheprovider \
        --numprocesses 3 --dist loadscope $tests
)

for python in ${PYTHONS:-$(.venv/bin/python -c 'import sys; print(sys._base_executable)')}; do
    wheel_for "$python"
done
