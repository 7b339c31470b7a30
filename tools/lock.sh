#!/bin/sh
# Write requirements-dev.lock: one version of everything that pyproject.toml asks for, for Python 3.10 and up.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null 2>&1 || { echo "lock: uv is missing; install it with: pip install uv" >&2; exit 1; }
uv pip compile --quiet --universal --upgrade --no-python-downloads --python-version 3.10 --all-extras --group dev \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml -o requirements-dev.lock.new
{ echo "# Written by \`make lock\` from pyproject.toml: all extras and the group dev, for Python 3.10 and up."; cat requirements-dev.lock.new; } >requirements-dev.lock
rm -f requirements-dev.lock.new
