#!/usr/bin/env bash
# What every change must pass before the tests: format, lint, types, layering, habits of the repository.
# All checks run, so that one call shows everything there is to mend.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

failed=()

check() {
    local title=$1 began=$SECONDS
    shift
    printf '\n── %s\n' "$title"
    "$@" || failed+=("$title")
    printf '   (%d s)\n' $((SECONDS - began))
}

readonly PYTHON=.venv/bin/python
check "format (mend with: $PYTHON -m ruff format)" "$PYTHON" -m ruff format --check .
check "lint" "$PYTHON" -m ruff check .
check "types" "$PYTHON" -m mypy --strict
check "layers and repository" "$PYTHON" -m pytest -q tests/test_import_boundaries.py tests/test_repository.py

if ((${#failed[@]})); then
    printf '\nFailed: %s\n' "$(IFS=,; echo "${failed[*]}")"
    exit 1
fi
printf '\nAll checks passed.\n'
