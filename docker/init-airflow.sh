#!/bin/bash
# Runs once before Airflow's components: the database's schema, and the password of the login `admin`.
set -euo pipefail

airflow db migrate

umask 077
python3 - <<'PYTHON'
import json
import os

path = os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
with open(path + ".new", "w") as file:
    json.dump({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}, file)
os.replace(path + ".new", path)
PYTHON
