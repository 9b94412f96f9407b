"""Finds settings that hold secrets, by their names and by their values."""

from __future__ import annotations

import re

#: A setting whose name has one of these parts holds a secret. Spark uses the same pattern to hide values in its own output.
SENSITIVE = (
    r"password|passwd|passphrase|secret|credential|jaas|token\b"
    # Of Kafka, HTTP and databases.
    r"|key[._-]?pem\b|keystore[._-]key\b|api[._-]?keys?\b|private[._-]?key|encryption[._-]?key\b|\bbearer\b(?![._-]auth)"
    r"|(?:^|[._-])pwd\b|user[._-]info\b|passcode"
    # Words that mean a secret only at the end of a name: `cookie.max.age` and `authorization.manager` are ordinary settings.
    r"|(?<!single)(?<!multi)(?<!one)(?<!two)(?<!first)(?<!second)(?:^|[._-])pass$"
    r"|(?<!security)(?<!azure)(?:^|[._-])authorization$|cookies?$|basic[._-]?auth$|client[._-]?assertion$"
    r"|(?:^|[._-])(?:pat|jwt|sig)$|(?<!verify)(?<!check)(?<!method)(?<!type)(?:^|[._-])signature$"
    r"|(?:^|(?:access|auth|refresh|session|bearer|api|id|user)[._-]?)tokens$"
    r"|(?:signing|hmac|master|ssh|(?:^|[._-])app)[._-]?key$"
    # Of S3, Azure and Google storage, as they are called in Hadoop, in fsspec and in connection strings.
    r"|access[._-]?key|account[._-]?key\b|storage[._-]?key\b|shared[._-]?key|shared[._-]?access|connection[._-]?string"
    r"|\bsas\b(?![._-]?token)"
)
_SECRET = re.compile(SENSITIVE)
#: If one of these words follows such a part, the setting only says where the secret is, how to get it, or of what type it is.
_INNOCENT = re.compile(
    r"\.(?:file|path|location|dir|url|uri|endpoint|full\.uri|relative\.uri|provider|providers|source|class|mechanism|algorithm|type"
    r"|name|enabled|length|limit|count|size|bucket|timeout|interval|lifetime|expiry|ttl|ms|seconds|renewal|retry|refresh)\b"
)
#: Paths, commands and switches whose names contain a word from above.
_INNOCENT_ENDS = ("application.credentials", ".kinit.cmd", ".enabled")
#: Every shell sets these to the working folder.
_INNOCENT_NAMES = ("PWD", "OLDPWD")

#: User and password in a URL. The password may contain a slash; a host and port must not match.
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d+(?:[/?#,]|$))[^\s@]+@")
#: A secret in a connection string, a query, or a Java property; `${...}` refers to a value elsewhere and is no secret.
_ASSIGNMENT = re.compile(r"([\w.-]+)[\"']?\s*=(?!=)\s*(?!\$\{)[^\s;&,]")

#: The places where a new word begins in a name without separators: `accountKey`, `SASToken`.
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret, in any spelling: `sasToken`, `SAS_TOKEN`, `fs.azure.sas...`."""
    if name in _INNOCENT_NAMES:
        return False
    words = re.sub(r"[^a-z0-9]+", ".", _BETWEEN_WORDS.sub(".", name).lower())
    if words.endswith(_INNOCENT_ENDS):
        return False
    return any(not _INNOCENT.match(words, _end_of_word(words, found.end())) for found in _SECRET.finditer(words))


def secret_in(value: str) -> str | None:
    """A description of the secret in a value, without the secret itself: a URL with a password, `password=...`."""
    if _URL_WITH_PASSWORD.search(value):
        return "a password in a URL"
    names = (found.group(1).lstrip("-") for found in _ASSIGNMENT.finditer(value))
    return next((f"{name}=..." for name in names if is_secret(name)), None)


def _end_of_word(words: str, at: int) -> int:
    """The end of the whole word in which a part was found: `credential` is found in `credentials.provider`."""
    end = words.find(".", at)
    return len(words) if end < 0 else end
