#!/bin/sh
# Pin the dependencies of pyproject.toml for Python 3.10 and newer: requirements-dev.lock for all extras and the group dev,
# requirements-bench.lock for packages that only `make bench` needs, requirements-docs.lock for those of `make docs`,
# requirements-workers.lock for the servers and notebooks in which `make test-long` runs the client.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null 2>&1 || { echo "lock: uv is missing; install it with: pip install uv" >&2; exit 1; }

# write FILE WHAT OPTION...: pin the packages that the options of uv select.
write() {
    file=$1 what=$2
    shift 2
    uv pip compile --quiet --universal --upgrade --no-python-downloads --python-version 3.10 "$@" \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o "$file.new"
    { echo "# Written by \`make lock\` from pyproject.toml: $what, for Python 3.10 and up."; cat "$file.new"; } >"$file"
    rm -f "$file.new"
}

write requirements-dev.lock "all extras and the group dev" --all-extras --group dev pyproject.toml
write requirements-bench.lock "the group bench" --group bench
write requirements-docs.lock "the group docs" --group docs --constraint requirements-dev.lock  # both go into .venv
write requirements-workers.lock "the group workers" --group workers
