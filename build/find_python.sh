#!/bin/sh
# Print a command that runs Python 3.13, or say what to install.
# PYTHON=/path/to/python3.13 names one; otherwise the usual names are tried.
set -u

is_313() {
  # A name may exist and yet refuse to run, as version managers' stand-ins do.
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' >/dev/null 2>&1
}

for python in ${PYTHON:-python3.13 python3 python}; do
  if is_313 "$python"; then
    echo "$python"
    exit 0
  fi
done

if [ -n "${PYTHON:-}" ]; then
  echo "PYTHON=$PYTHON is not Python 3.13." >&2
else
  echo "Python 3.13 is needed (the site is built by the Python that its page runs) and was not found." >&2
fi
cat >&2 <<'HELP'
Install it with one of
  apt-get install python3.13 python3.13-venv
  brew install python@3.13
  pyenv install 3.13
  uv python install 3.13
and, where it is not on the PATH, name it: make PYTHON=/path/to/python3.13 …
HELP
exit 1
