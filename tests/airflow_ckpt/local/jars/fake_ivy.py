"""A `java` that acts as Ivy: files in the folder FAKE_IVY say what it delivers and how it fails.

Run as a program by the tests of jars; needs nothing but Python.
"""

import os
import sys
import time
import zipfile
from pathlib import Path


def main() -> int:
    if "-version" in sys.argv:
        print('openjdk version "17.0.1"', file=sys.stderr)
        return 0
    folder = Path(os.environ["FAKE_IVY"])
    arguments = dict(zip(sys.argv, sys.argv[1:], strict=False))
    cache, into = Path(arguments["-cache"]), Path(arguments["-retrieve"]).parent
    with (folder / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    (cache / "downloads").mkdir(exist_ok=True)
    while (folder / "wait").exists():
        time.sleep(0.02)
    if (folder / "unreachable").exists():
        print("Server access error at url https://repo.example/a/b.pom (java.net.ConnectException: Connection refused)")
        return 1
    if (cache / "downloads" / "half.jar").exists():
        print("download failed: half.jar")
        return 1
    if (folder / "interrupted").exists():
        (cache / "downloads" / "half.jar").write_bytes(b"half")
        (into / "alpha-1.0.jar").write_bytes(b"half")
        return 130
    for name in (folder / "delivers").read_text().split():
        with zipfile.ZipFile(into / name, "w") as jar:
            jar.writestr("content", name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
