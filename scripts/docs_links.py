"""A hook of MkDocs: links from docs/ to other files of the repository.

A code host shows a page of docs/ beside the rest of the repository, so `../CHANGELOG.md` works there. The site has docs/
alone. Such a link leads to the repository there, if mkdocs.yml has its address, and is plain text otherwise.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

#: A link that is no picture, and whose target is a relative path.
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?![a-z]+:|/|#)[^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return rewritten(markdown, page.file.src_uri, config.repo_url or "")


def rewritten(markdown: str, page: str, repository: str) -> str:
    """The page's text with its links out of docs/ rewritten; code blocks stay as they are."""
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _rewrite(part, page, repository) for part in parts)


def _rewrite(text: str, page: str, repository: str) -> str:
    def replace(link: re.Match[str]) -> str:
        label, target = link.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return link[0]
        return f"[{label}]({repository.rstrip('/')}/blob/main/{path})" if repository else label

    return LINK.sub(replace, text)
