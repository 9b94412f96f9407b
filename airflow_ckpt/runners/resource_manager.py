"""Requests to YARN's ResourceManager: they go to the active ResourceManager of a cluster, and an error says what helps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from airflow_ckpt.exceptions import RunnerError

# A cluster has two or three ResourceManagers; more redirects than this are a loop.
_MOST_MANAGERS = 8


class ResourceManagers:
    """The ResourceManagers of one cluster. `addresses` holds their web addresses, separated by commas."""

    def __init__(self, addresses: str, auth: Any = None, user: str = "", timeout: float = 10.0) -> None:
        self._urls = tuple(url.strip().rstrip("/") for url in addresses.split(",") if url.strip())
        wrong = [url for url in self._urls if urlsplit(url).scheme not in ("http", "https")]
        if wrong or not self._urls:
            raise RunnerError(f"rm_url is {addresses!r}; it must look like http://resourcemanager:8088")
        self._auth = auth
        #: The user name for a cluster without Kerberos, which does not check it.
        self._user = user
        self._timeout = timeout

    @property
    def url(self) -> str:
        """The ResourceManager that answered last; before any answer, the first address."""
        return self._urls[0]

    def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Any = None
    ) -> requests.Response:
        """The answer of the active ResourceManager, with any status below 500. Raises RunnerError if none of them answers."""
        left, asked, problems = deque(self._urls), set[str](), list[str]()
        while left and len(asked) < _MOST_MANAGERS:
            base = left.popleft()
            if base in asked:
                continue
            asked.add(base)
            try:
                answer = self._send(method, base + path, params, json)
            except requests.RequestException as error:
                problems.append(f"{base} does not answer: {_in_short(error)}")
                continue
            active, is_redirect = _redirected_to(answer, path)
            if active:
                problems.append(f"{base} is a standby and names {active}")
                left.appendleft(active)
            elif is_redirect or answer.status_code >= 500:
                problems.append(complaint(answer))
            else:
                # Send the next request to this ResourceManager first: another one may be down, and would cost a timeout.
                self._urls = (base, *(url for url in self._urls if url != base))
                return answer
        raise RunnerError("no ResourceManager answers: " + "; ".join(problems))

    def _send(self, method: str, url: str, params: Mapping[str, str] | None, json: Any) -> requests.Response:
        return requests.request(
            method,
            url,
            params={**(params or {}), **({"user.name": self._user} if self._user else {})},
            json=json,
            auth=self._auth,
            timeout=self._timeout,
            headers={"Accept": "application/json"},
            # The method above follows redirects, because the requests library drops the credentials on the way to another host.
            allow_redirects=False,
        )


def is_not_found(answer: requests.Response) -> bool:
    """Whether the ResourceManager answers that there is no such application. A 404 of another web server does not count."""
    return answer.status_code == 404 and "NotFoundException" in answer.text


def body_of(answer: requests.Response) -> dict[str, Any]:
    """The JSON object of an answer with status 200. Raises RunnerError for every other answer."""
    if answer.status_code != 200:
        raise RunnerError(complaint(answer))
    try:
        value = answer.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunnerError(f"{answer.url} does not answer as a ResourceManager does: {answer.text[:200]!r}")
    return value


def complaint(answer: requests.Response) -> str:
    """What is wrong with an answer, and what helps."""
    text = f"{answer.url} answers HTTP {answer.status_code}"
    if answer.status_code in (401, 403):
        return (
            f"{text}: YARN refuses access. With Kerberos, pass `auth` (HTTPKerberosAuth of requests-kerberos) and have "
            "a valid ticket (`klist`, `kinit`); without Kerberos, pass `user`: the user who submitted, or an administrator"
        )
    if answer.status_code == 404:
        return f"{text}, but not like a ResourceManager: check its address"
    if 300 <= answer.status_code < 400:
        return (
            f"{text} with a redirect to {answer.headers.get('Location') or 'no address: no ResourceManager is active'}"
        )
    return f"{text}: {answer.text[:200]!r}"


def _redirected_to(answer: requests.Response, path: str) -> tuple[str, bool]:
    """The ResourceManager to which a standby redirects, and whether the answer is a redirect at all (maybe to a login page)."""
    refresh = answer.headers.get("Refresh", "")
    is_redirect = 300 <= answer.status_code < 400 or bool(refresh)
    target = urlsplit(answer.headers.get("Location") or refresh.partition("url=")[2].strip())
    if not is_redirect or target.scheme not in ("http", "https") or not target.path.endswith(path):
        return "", is_redirect
    return f"{target.scheme}://{target.netloc}{target.path.removesuffix(path)}", True


def _in_short(error: requests.RequestException) -> str:
    kind = "time-out" if isinstance(error, requests.Timeout) else type(error).__name__
    return f"{kind} ({error})"
