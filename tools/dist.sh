#!/bin/sh
# Make dist/: the sdist, and the wheel from the sdist. Then run the sdist's tests against the wheel, in a clean environment.
set -eu
cd "$(dirname "$0")/.."
work=build/dist-check
rm -rf dist "$work"
mkdir -p "$work"

echo "dist: building the sdist, and the wheel from it"
.venv/bin/python -m build --no-isolation --outdir dist . >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log" >&2; exit 1; }
wheel=$(ls dist/*.whl)

echo "dist: looking into $wheel"
.venv/bin/python - "$wheel" <<'PYTHON'
import re, sys, zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
wrong = [n for n in names if not re.fullmatch(r"rocketc/(.*\.(py|pyi|so)|py\.typed)|pyspark_rocketmq/__init__\.py|rocketc-[^/]*\.dist-info/.*", n)]
missing = {"rocketc/__init__.py", "rocketc/py.typed", "pyspark_rocketmq/__init__.py"} - set(names)
if wrong or missing:
    sys.exit(f"dist: does not belong into the wheel: {wrong}; is missing: {sorted(missing)}")
PYTHON

echo "dist: installing it into a clean environment"
tar -xzf dist/*.tar.gz -C "$work"
"$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock \
    "./$wheel[arrow,compression,plot,remote,spark]"
"$work/venv/bin/python" -m pip check

echo "dist: testing it"
venv=$PWD/$work/venv
package=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/rocketc
cd "$work"/rocketc-*/
exec env PYTHONSAFEPATH=1 ROCKETC_TEST_PACKAGE="$package" "$venv/bin/pytest" -m "not long" -p no:cacheprovider --numprocesses 2 --dist loadscope
