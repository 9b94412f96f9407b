#!/bin/sh
# Checks one thing the project needs and cannot install itself. Says nothing if all is well;
# else one line with what is wrong and what to type, and exit code 1.
#
#   preflight.sh python <interpreter> | java | disk <folder>
set -u

OLDEST_PYTHON=3.11
OLDEST_JAVA=17
NEEDED_GB=3

fail() {
    echo "airflow-ckpt: $*" >&2
    exit 1
}

is_new_python() {
    "$1" -c "import sys; sys.exit(sys.version_info < (${OLDEST_PYTHON%.*}, ${OLDEST_PYTHON#*.}))" 2>/dev/null
}

check_python() {
    python=$1
    if ! is_new_python "$python"; then
        for candidate in python3.13 python3.12 python3.11; do
            if is_new_python "$candidate"; then
                fail "Python $OLDEST_PYTHON or newer is needed and $python is not; you have one: make PYTHON=$candidate <target>"
            fi
        done
        found=$("$python" --version 2>&1) || found="$python does not run"
        fail "Python $OLDEST_PYTHON or newer is needed ($found): install one (apt-get install python3 python3-venv, brew install python), then make PYTHON=<path> <target>"
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments: apt-get install python3-venv, then the same command again"
}

check_java() {
    remedy="install one (apt-get install openjdk-$OLDEST_JAVA-jre-headless, brew install openjdk@$OLDEST_JAVA) and set JAVA_HOME to its folder"
    java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    answer=$("$java" -version 2>&1) || fail "Java $OLDEST_JAVA or newer is needed and $java does not run: $remedy"
    # 'openjdk version "17.0.15" 2025-04-15' of Java 17, 'java version "1.8.0_392"' of Java 8.
    major=$(printf '%s\n' "$answer" | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    [ -n "$major" ] || fail "cannot tell the version of $java: $remedy"
    [ "$major" -ge "$OLDEST_JAVA" ] || fail "Java $OLDEST_JAVA or newer is needed and $java is Java $major: $remedy"
}

check_disk() {
    free_kb=$(df -Pk "$1" | awk 'NR == 2 {print $4}')
    [ "$free_kb" -ge $((NEEDED_GB * 1000 * 1000)) ] ||
        fail "only $((free_kb / 1000)) MB free for $1 and $NEEDED_GB GB are needed: free some space, then the same command again"
}

case ${1:-} in
python) check_python "${2:?interpreter}" ;;
java) check_java ;;
disk) check_disk "${2:?folder}" ;;
*) fail "usage: $0 python <interpreter> | java | disk <folder>" ;;
esac
