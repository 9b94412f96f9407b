#!/bin/sh
# Writes .env beside docker-compose.yaml, with a random value for every name in docker/env.example.
# An .env that is there already is left as it is: its database password is in use.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${1:-$here/../.env}

if [ -e "$target" ]; then
    echo "airflow-ckpt: $target is there already; delete it first (with the volumes: docker compose down --volumes)" >&2
    exit 1
fi

hex() {
    od -An -N 32 -tx1 /dev/urandom | tr -d ' \n'
}

fernet() {
    head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '\n'
}

umask 077
new=$target.new
trap 'rm -f "$new"' EXIT
while IFS= read -r line; do
    case $line in
    AIRFLOW_FERNET_KEY=) echo "$line$(fernet)" ;;
    [A-Z]*=) echo "$line$(hex)" ;;
    *) echo "$line" ;;
    esac
done <"$here/env.example" >"$new"
mv "$new" "$target"
echo "wrote $target; the login is admin, its password: grep AIRFLOW_ADMIN_PASSWORD $target"
