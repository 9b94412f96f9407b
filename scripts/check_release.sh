#!/bin/sh
# Checks that a tag, the version in the source, the changelog and the files in dist/ agree.
#
#   check_release.sh v<version>
set -u
cd "$(dirname "$0")/.."

fail() {
    echo "airflow-ckpt: $*" >&2
    exit 1
}

tag=${1:?tag, such as v0.1.0}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' airflow_ckpt/__init__.py)
[ "$tag" = "v$version" ] || fail "the tag is $tag and the version is $version: correct __version__ in airflow_ckpt/__init__.py, or the tag"
grep -Eq "^## $(printf %s "$version" | sed 's/\./\\./g') \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    fail "CHANGELOG.md has no heading '## $version (<date>)': put the date there"
[ -d "tests/compatibility/stored/$version" ] ||
    fail "tests/compatibility/stored/$version is not there: .venv/bin/python -m tests.compatibility.store $version"
for file in "airflow_ckpt-$version-py3-none-any.whl" "airflow_ckpt-$version.tar.gz"; do
    [ -f "dist/$file" ] || fail "dist/$file is not there: make dist"
done
