"""Without the extension that reads documents: plain text as it is, and a word on the rest."""

import anyio.to_thread
import pytest

from bot.ports.documents import MOST_TEXT, UNREAD, PlainDocuments
from threads.store.attachments import Extracted, ModelImage

PLAIN = PlainDocuments(anyio.to_thread.run_sync)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"words", Extracted("words", as_is=True)),
        ("wo\u200brds".encode(), Extracted("words")),
        (b"%PDF-1.7 \xff", Extracted("", problem=UNREAD)),
        (b" \n", Extracted("", problem="it is empty.")),
        (
            "\u00e9".encode() * MOST_TEXT,
            Extracted("\u00e9" * (MOST_TEXT // 2), "", "only the beginning of it was read.", True),
        ),
    ],
)
async def test_plain_text_is_read_and_another_file_names_the_extension(data, found, tmp_path):
    (tmp_path / "file").write_bytes(data)
    assert await PLAIN.text_of(data, "") == await PLAIN.text_of(tmp_path / "file", "") == found
    assert await PLAIN.picture_of(data) == ModelImage(b"", problem=UNREAD)
