#!/usr/bin/env bash
# Renews requirements/constraints.txt: every library of ScopeFlow's environment, transitive ones included, at the
# newest version that pyproject.toml allows. `make constraints` runs it inside .venv.
#
# PyTorch stands in the file by its plain version, and the CUDA libraries of its GPU build do not stand there at all:
# whichever build is installed (CPU or GPU) is then accepted, and a CPU build brings no CUDA libraries along. The GPU
# build pins its own CUDA libraries exactly, so nothing is left open.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=requirements/constraints.txt
compiled=$(mktemp)
trap 'rm -f "$compiled"' EXIT

echo "Resolving pyproject.toml with the dev extra (about a minute) …"
.venv/bin/python -m piptools compile pyproject.toml --extra dev --upgrade --output-file "$compiled" --quiet \
    --strip-extras --allow-unsafe --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

mkdir -p requirements
{
    echo "# Every library of ScopeFlow's environment. Made by \`make constraints\`; do not edit by hand."
    sed -E -e 's/^(torch==[^+;[:space:]]+)\+[^;[:space:]]+/\1/' "$compiled" \
        | grep -Ev '^(nvidia-|cuda-|triton(==|-)|#|[[:space:]]*$)'
} > "$target.new"
mv "$target.new" "$target"
echo "$target: $(grep -c == "$target") libraries pinned. Run \`make check test\`, then commit it."
