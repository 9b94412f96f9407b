"""Which settings hold secrets, by their names and by what is in their values."""

from __future__ import annotations

import re

#: Parts of a name whose value must never be shown; Spark is given the same for what it shows itself.
SENSITIVE = (
    r"password|passwd|passphrase|secret|credential|jaas|token\b"
    # Of Kafka, HTTP and databases.
    r"|key[._-]?pem\b|keystore[._-]key\b|api[._-]?keys?\b|private[._-]?key|encryption[._-]?key\b|\bbearer\b(?![._-]auth)"
    r"|(?:^|[._-])pwd\b|user[._-]info\b|passcode"
    # Words that mean a secret at the end of a name only: `cookie.max.age` and `authorization.manager` are ordinary settings.
    r"|(?<!single)(?<!multi)(?<!one)(?<!two)(?<!first)(?<!second)(?:^|[._-])pass$"
    r"|(?<!security)(?<!azure)(?:^|[._-])authorization$|cookies?$|basic[._-]?auth$|client[._-]?assertion$"
    r"|(?:^|[._-])(?:pat|jwt|sig)$|(?<!verify)(?<!check)(?<!method)(?<!type)(?:^|[._-])signature$"
    r"|(?:^|(?:access|auth|refresh|session|bearer|api|id|user)[._-]?)tokens$"
    r"|(?:signing|hmac|master|ssh|(?:^|[._-])app)[._-]?key$"
    # Of storage: S3's, Azure's and Google's, in the words of Hadoop, of fsspec and of their connection strings.
    r"|access[._-]?key|account[._-]?key\b|storage[._-]?key\b|shared[._-]?key|shared[._-]?access|connection[._-]?string"
    r"|\bsas\b(?![._-]?token)"
)
_SECRET = re.compile(SENSITIVE)
#: Words that follow such a part in the name of a setting that says where the secret is, how to get it, or of what kind it is.
_INNOCENT = re.compile(
    r"\.(?:file|path|location|dir|url|uri|endpoint|full\.uri|relative\.uri|provider|providers|source|class|mechanism|algorithm|type"
    r"|name|enabled|length|limit|count|size|bucket|timeout|interval|lifetime|expiry|ttl|ms|seconds|renewal|retry|refresh)\b"
)
#: Paths, commands and switches that have a word from above in their names.
_INNOCENT_ENDS = ("application.credentials", ".kinit.cmd", ".enabled")
#: What every shell sets: the working folder.
_INNOCENT_NAMES = ("PWD", "OLDPWD")

#: User and password in a URL, which may have a slash in it; host and port are not one.
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d+(?:[/?#,]|$))[^\s@]+@")
#: As in a connection string, a query, or a Java property; `${...}` stands for a value that is elsewhere.
_ASSIGNMENT = re.compile(r"([\w.-]+)[\"']?\s*=(?!=)\s*(?!\$\{)[^\s;&,]")

#: Where a new word begins in a name without separators: `accountKey`, `SASToken`.
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_secret(name: str) -> bool:
    """Whether a setting of this name must never be shown, however it is spelt: `sasToken`, `SAS_TOKEN`, `fs.azure.sas...`."""
    if name in _INNOCENT_NAMES:
        return False
    words = re.sub(r"[^a-z0-9]+", ".", _BETWEEN_WORDS.sub(".", name).lower())
    if words.endswith(_INNOCENT_ENDS):
        return False
    return any(not _INNOCENT.match(words, _end_of_word(words, found.end())) for found in _SECRET.finditer(words))


def secret_in(value: str) -> str | None:
    """What in a value must never be shown, named without showing it: a URL with a password, `password=...`."""
    if _URL_WITH_PASSWORD.search(value):
        return "a password in a URL"
    names = (found.group(1).lstrip("-") for found in _ASSIGNMENT.finditer(value))
    return next((f"{name}=..." for name in names if is_secret(name)), None)


def _end_of_word(words: str, at: int) -> int:
    """`credential` was found in `credentials.provider`: what follows begins after the whole word."""
    end = words.find(".", at)
    return len(words) if end < 0 else end
