#!/usr/bin/env bash
# Debian packages that the tests use and Python cannot bring: installed where they are missing, if we may.
set -euo pipefail
missing=()
compgen -G '/usr/lib/postgresql/*/bin/initdb' > /dev/null || command -v initdb > /dev/null || missing+=(postgresql)
command -v chromium > /dev/null || command -v google-chrome > /dev/null || missing+=(chromium)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
  echo "Installing with apt-get: ${missing[*]} ..."
  if apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null ||
     { apt-get update -q > /dev/null && apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null; }; then
    exit 0
  fi
fi
echo "safedial: not installed: ${missing[*]}. The tests that need it will fail and say so; install it by hand" \
     "(Debian: apt-get install ${missing[*]})." >&2
