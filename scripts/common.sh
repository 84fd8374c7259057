# Sourced by demo, test and .ci/run. Everything they make is in build/, which git ignores.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$root/build
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '\n== %s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# The Python that environments are made from.
base_python() { printf '%s' "${PYTHON:-python3}"; }

# install PACKAGE...: Debian's and Ubuntu's packages, where this user may.
install() {
    local run=(env DEBIAN_FRONTEND=noninteractive)
    [ "$(id -u)" = 0 ] || run=(sudo -n "${run[@]}")
    if ! command -v apt-get >/dev/null || ! "${run[@]}" true 2>/dev/null; then
        die "needs $*: install them with this system's package manager, then run this again"
    fi
    say "installing $*"
    mkdir -p "$work"
    if ! { "${run[@]}" apt-get update -qq && "${run[@]}" apt-get install -y -qq --no-install-recommends "$@"; } \
        >"$work/apt.log" 2>&1; then
        tail -n 20 "$work/apt.log" >&2
        die "could not install $*"
    fi
}

# What building the wheel needs beyond Python packages; installs what is missing.
need_build_tools() {
    local missing=() python
    command -v "$(base_python)" >/dev/null || install python3
    python=$(base_python)
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "$python is older than 3.10; name a newer one in PYTHON"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    "$python" -c 'import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").is_file())' || missing+=(python3-dev)
    [ -n "${CXX:-}" ] || command -v c++ >/dev/null || missing+=(g++)
    [ ${#missing[@]} = 0 ] || install "${missing[@]}"
}

# make_environment FOLDER: a virtual environment there, unless it works already.
make_environment() {
    "$1/bin/python" -m pip --version >/dev/null 2>&1 && return
    rm -rf "$1"
    "$(base_python)" -m venv "$1"
}

# Builds the wheel with the profile `default`; leaves its path in WOOTZ_WHEEL. What is up to date is not built
# again.
build_wheel() {
    say "building the wheel (the first time takes minutes)"
    make_environment "$work/tools"
    "$work/tools/bin/python" -m pip install -q 'build>=1.2'
    rm -rf "$work/dist"
    "$work/tools/bin/python" -m build --wheel \
        --outdir "$work/dist" "$root"
    WOOTZ_WHEEL=$(echo "$work"/dist/*.whl)
    export WOOTZ_WHEEL
}

# Whether what executes emitted text on the CPU is there: the compiler, its sanitizers, its tools.
have_clang() {
    local tool
    for tool in clang++-19 llvm-nm-19 llvm-symbolizer-19; do
        command -v "$tool" >/dev/null || return 1
    done
    [ -e "$(clang++-19 --rtlib=compiler-rt -print-file-name="libclang_rt.asan-$(uname -m).a")" ]
}
