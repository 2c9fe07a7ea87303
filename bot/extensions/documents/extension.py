"""Documents, web pages and pictures from outside: a process without rights takes each apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.host.extension import Extension

if TYPE_CHECKING:
    from threads.store.disk import Offload
    from threads.store.thread_files import Documents


def _documents(offload: Offload) -> Documents:
    from bot.extensions.documents.reader import Reader  # noqa: PLC0415 - for a running bot

    return Reader(offload)


extension = Extension(
    "documents",
    "reads PDF, office documents, mail and web pages as text, and scales pictures",
    page="docs/security.md",
    documents=_documents,
)
