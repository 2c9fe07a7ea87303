"""Writing all bytes, whatever the disk takes at a time, and many files of which some cannot be replaced."""

from __future__ import annotations

import errno

import pytest

from threads.store.disk import PosixDisk, Replacement, replace_files, write_all


class Stingy:
    """Takes two bytes at a time, and keeps what it was given."""

    def __init__(self, refuses_after: int) -> None:
        self.taken, self.given, self._left = b"", [], refuses_after

    def write(self, data: memoryview) -> int:
        self.given.append(data)
        if not self._left:
            raise OSError(errno.ENOSPC, "full")
        self._left -= 1
        self.taken += bytes(data[:2])
        return min(2, len(data))


def test_content_may_grow_after_an_error_that_somebody_still_holds():
    file, content = Stingy(2), bytearray(b"abcdefg")
    with pytest.raises(OSError, match="full") as held:
        write_all(file, content)
    content += b"h"
    assert held.value.errno == errno.ENOSPC
    assert file.taken == b"abcd"
    write_all(whole := Stingy(9), content)
    assert whole.taken == b"abcdefgh"


def test_a_folder_that_cannot_be_created_costs_only_the_file_in_it(tmp_path):
    (tmp_path / "taken").write_bytes(b"a file")
    files = [tmp_path / name / "file" for name in ("a", "taken/below", "b")]
    replacements = [Replacement(path, b"new", new=True) for path in files]
    replace_files(PosixDisk(), replacements)
    assert [type(one.error) for one in replacements] == [type(None), NotADirectoryError, type(None)]
    assert [files[0].read_bytes(), files[2].read_bytes()] == [b"new", b"new"]
