# Finds the Pythons of this machine: read by scripts/test and scripts/wheels.

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# The first Python of this version that runs: on PATH (pyenv's shims are there and fail), else of pyenv or uv.
python_of() { # version
    local candidate
    for candidate in $(type -aP "python$1" || true) \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-"$1".*/bin/python"$1"; do
        if [ -x "$candidate" ] && [ "$(version_of "$candidate" || true)" = "$1" ]; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
}
