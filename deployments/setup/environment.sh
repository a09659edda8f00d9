#!/usr/bin/env bash
# Makes or renews ScopeFlow's Python environment in .venv. Every `make` target runs it first; when nothing has changed
# it costs a few milliseconds. An interrupted run is simply taken up again by the next one.
#
#   PYTHON=/path/to/python3.12   the interpreter to use (default: the first of python3, 3.13, 3.12, 3.11 that fits)
#   PIP_EXTRA_INDEX_URL=…        pip's own setting; with PyTorch's CPU index, the small build of PyTorch is taken
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VENV=.venv
readonly LOG=$VENV/setup.log
readonly STAMP=$VENV/.complete
readonly CONSTRAINTS=requirements/constraints.txt

say() { printf '%s\n' "$*" >&2; }

die() {
    say "" "error: $1"
    shift
    local line
    for line in "$@"; do say "       $line"; done
    exit 1
}

# What the environment depends on: a changed line here makes a new one. The directory counts since scripts in .venv/bin
# carry its path.
wanted() {
    cat pyproject.toml "$CONSTRAINTS" deployments/setup/environment.sh | sha256sum | cut -d' ' -f1
    pwd -P
}

is_current() {
    [[ -f $STAMP && $(<"$STAMP") == "$(wanted)" ]] && "$VENV/bin/python" -c '' 2>/dev/null
}

fits() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer found${PYTHON:+: PYTHON=$PYTHON is none}." \
        "Debian 12, Ubuntu 23.04 and later:  sudo apt-get install python3 python3-venv" \
        "Ubuntu 22.04:                       sudo apt-get install python3.11 python3.11-venv" \
        "Or name one:                        make demo PYTHON=/path/to/python3.12"
}

# Bare Debian and Ubuntu ship Python without ensurepip; it comes with python3.X-venv.
require_ensurepip() {
    local python=$1 package
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$python" -c 'import sys; print(f"python3.{sys.version_info.minor}-venv")')
    local -a as_root=()
    if [[ $(id -u) != 0 ]]; then
        if ! sudo -n true 2>/dev/null; then
            die "$python cannot make virtual environments: its package $package is missing." \
                "Type:  sudo apt-get install $package" "then run make again."
        fi
        as_root=(sudo -n)
    fi
    command -v apt-get >/dev/null 2>&1 ||
        die "$python cannot make virtual environments (no module ensurepip)." "Install it with your package manager."
    say "  installing $package (Python's virtual environments)"
    {
        "${as_root[@]}" apt-get update
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
    } >>"$SETUP_LOG" 2>&1 || {
        tail -n 15 "$SETUP_LOG" >&2
        die "apt-get could not install $package." "Type:  sudo apt-get install $package" "then run make again."
    }
}

# Runs a command into the log; says what it is doing now and then, since the first run takes minutes.
step() {
    local title=$1 began=$SECONDS pid shown=0 now
    shift
    say "  $title"
    printf '\n==> %s\n' "$*" >>"$LOG"
    "$@" >>"$LOG" 2>&1 &
    pid=$!
    # shellcheck disable=SC2064  # the process id of now is meant
    trap "kill $pid 2>/dev/null; exit 130" INT TERM HUP
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.3
        if ((SECONDS - began - shown >= 20)); then
            shown=$((SECONDS - began))
            now=$(grep -oE '^ *(Collecting [^ <>=(]+|Downloading [^ ]+|Building .*|Installing)' "$LOG" | tail -n 1 || true)
            say "    ${shown} s … ${now//  /}"
        fi
    done
    trap - INT TERM HUP
    if ! wait "$pid"; then
        say ""
        tail -n 25 "$LOG" >&2
        die "setting up the environment failed at: $title" \
            "The whole log is in $LOG. Run make again to go on from here;" \
            "if the network was away, that is all it takes."
    fi
    say "    done in $((SECONDS - began)) s"
}

hint_about_torch() {
    [[ -e /proc/driver/nvidia || -n ${PIP_EXTRA_INDEX_URL:-}${PIP_INDEX_URL:-}${PIP_FIND_LINKS:-} ]] && return
    [[ $(uname -s)-$(uname -m) == Linux-x86_64 ]] || return 0
    say "    No NVIDIA GPU here, yet PyTorch's default build brings its CUDA libraries (gigabytes). For the small build"
    say "    stop now and set PIP_EXTRA_INDEX_URL to PyTorch's CPU index (named on PyTorch's install page)."
}

build() {
    local python pip
    python=$(find_python)
    SETUP_LOG=$(mktemp)
    require_ensurepip "$python"

    say "Making ScopeFlow's environment in $VENV with $("$python" --version) (a few minutes, once)"
    local -a fresh=()
    if [[ -f $STAMP && $(tail -n 1 "$STAMP") != "$(pwd -P)" ]] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        fresh=(--clear)
    fi
    rm -f "$STAMP"
    mkdir -p "$VENV"
    if ((${#fresh[@]})); then
        "$python" -m venv --clear "$VENV" >>"$SETUP_LOG" 2>&1 || {
            cat "$SETUP_LOG" >&2
            die "$python -m venv $VENV failed."
        }
    fi
    mv "$SETUP_LOG" "$LOG"
    # A library whose installation was cut off has no INSTALLER yet, but pip would take it for installed.
    find "$VENV"/lib/python*/site-packages -maxdepth 1 -name '*.dist-info' '!' -exec test -f '{}/INSTALLER' ';' \
        -exec rm -rf '{}' '+' 2>>"$LOG" || true

    pip=("$VENV/bin/python" -m pip --disable-pip-version-check --no-input --retries 8 install --progress-bar off)
    # A constraint must not hold the installer itself back: the newest pip of the file is taken first.
    step "1/3 installer" "${pip[@]}" -c "$CONSTRAINTS" pip setuptools wheel
    # First and alone: asked for together with the rest, another build of the same version may be chosen.
    hint_about_torch
    step "2/3 PyTorch" "${pip[@]}" -c "$CONSTRAINTS" torch
    "$VENV/bin/python" - >"$VENV/requirements.txt" <<'PYTHON'
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
print(*project["dependencies"], *project["optional-dependencies"]["dev"], sep="\n")
PYTHON
    step "3/3 libraries and ScopeFlow" "${pip[@]}" -c "$CONSTRAINTS" -r "$VENV/requirements.txt"
    "${pip[@]}" --no-deps --no-build-isolation -e . >>"$LOG" 2>&1 || {
        tail -n 25 "$LOG" >&2
        die "installing ScopeFlow itself failed; the whole log is in $LOG."
    }
    wanted >"$STAMP"
}

is_current && exit 0
# Two makes at once: the second waits, then finds the work done. The lock is on a file that is always there.
if command -v flock >/dev/null 2>&1; then
    exec 9<pyproject.toml
    flock -n 9 || {
        say "Another make is setting up $VENV; waiting for it …"
        flock 9
    }
    is_current && exit 0
fi
build
