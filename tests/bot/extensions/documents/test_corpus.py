"""The words of real public files arrive, where somebody has put the files."""

import os
from pathlib import Path

import pytest

from tests.documents_corpus.check import check, listed

FOLDER = os.environ.get("THREADFAST_DOCUMENTS", "")


@pytest.mark.skipif(
    not FOLDER, reason="public files are not ours to ship; THREADFAST_DOCUMENTS names their folder"
)
async def test_every_word_of_the_public_files_arrives():
    report = await check(Path(FOLDER))
    assert report.files.total() >= 60
    assert not report.missing


def test_the_table_names_each_file_once_and_words_of_every_kind():
    files = list(listed())
    assert len({one.sha256 for one in files}) == len(files) >= 60
    assert all(one.words for one in files)
    assert {one.kind for one in files} >= {
        "docx", "xlsx", "pptx", "pdf", "eml", "odt", "ods", "odp", "rtf", "epub", "ipynb", "text",
    }  # fmt: skip
