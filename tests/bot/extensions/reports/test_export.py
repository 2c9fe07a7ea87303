"""Exports are one file each that needs nothing else."""

from tests.bot.cli.data_folders import exchange, threadfast, write_thread

FORBIDDEN = ("<script", "http://", "https://", 'src="/', 'href="/')


def test_a_thread_is_one_file(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1, "<script>alert(1)</script>"))
    for option in (["--html"], ["--format", "html"]):
        page = threadfast(tmp_path, "threads", "export", "1.1", *option).stdout
        assert page.startswith("<!doctype html>")
        assert "&lt;script&gt;alert(1)" in page
        assert [word for word in FORBIDDEN if word in page] == []


def test_all_threads_are_a_folder_of_files(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    write_thread(tmp_path, "2.2", *exchange(2))
    threadfast(tmp_path, "threads", "export", "--all", "--html", "--output", str(tmp_path / "out"))
    assert len([*(tmp_path / "out").glob("*.html")]) == 2


def test_spending_is_one_file_with_its_charts(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    page = threadfast(tmp_path, "usage", "--html").stdout
    assert page.count("data:image/svg+xml;base64,") == 4
    assert [word for word in FORBIDDEN if word in page] == []
