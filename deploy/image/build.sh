#!/bin/sh
# Installs Headrace into a folder: build.sh PREFIX EXTRAS [CHECKOUT]
#
# PREFIX becomes a virtual environment, for instance /opt/headrace. EXTRAS are those of pyproject.toml, separated by
# commas, or an empty text. Packages have the versions of constraints.txt. The Dockerfile runs it; it needs no container. PIP_ARGS are more arguments for pip, such as
# an index with PyTorch's CPU-only builds. Everyone may read the result, and nobody needs to write to it.
set -eu
prefix=$1
extras=$2
checkout=${3:-$(cd "$(dirname "$0")/../.." && pwd)}

"${PYTHON:-python3}" -m venv "$prefix"
# A copy, so that a build leaves nothing in the checkout, which may be read-only.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$checkout"
cp -R pyproject.toml README.md LICENSE config policies adapters runtimes gateway "$copy"
# shellcheck disable=SC2086 # PIP_ARGS are several words
"$prefix/bin/pip" install --disable-pip-version-check --no-cache-dir --constraint constraints.txt \
  ${PIP_ARGS:-} "$copy${extras:+[$extras]}"
# What is in the image, for scanners and bills of materials.
"$prefix/bin/pip" list --disable-pip-version-check --format json > "$prefix/packages.json"
# The server installs nothing at run time, except the model files that it fetches with pip.
chmod -R a+rX,a-w "$prefix"
"$prefix/bin/headrace" --help > /dev/null
