"""What systemd is told, and that nobody else can speak in our name."""

import logging
import os
import re
import socket

import pytest

from bot.observe.systemd_notify import Notify


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request, tmp_path):
    address = str(tmp_path / "notify") if request.param == "a path" else f"@threadfast-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(address.replace("@", "\0"))
        there.setblocking(False)
        yield address, there


def test_it_is_told_over_the_socket_of_the_unit(systemd):
    address, there = systemd
    notify = Notify.from_environ({"NOTIFY_SOCKET": address})
    notify.starting(60)
    assert notify.ready()
    notify.alive()
    notify.status("slack connected\nREADY=0")
    notify.stopping(20.5)
    assert [there.recv(1000).decode() for _ in range(5)] == [
        "EXTEND_TIMEOUT_USEC=60000000",
        "READY=1",
        "WATCHDOG=1",
        "STATUS=slack connected READY=0",
        "STOPPING=1\nEXTEND_TIMEOUT_USEC=20500000",
    ]


def test_a_reload_is_told_with_its_end_once_the_bot_is_ready(systemd):
    address, there = systemd
    notify = Notify.from_environ({"NOTIFY_SOCKET": address})
    with notify.reloading():
        pass  # its end would count as that of the start
    notify.ready()
    with notify.reloading():
        pass
    ready, began, ended = (there.recv(1000).decode() for _ in range(3))
    assert (ready, ended) == ("READY=1", "READY=1")
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", began)


def test_children_do_not_inherit_the_way_to_systemd():
    environ = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    Notify.from_environ(environ)
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("given", "every_s"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_heeded_if_it_is_meant_for_this_process(given, every_s):
    assert Notify.from_environ(dict(given)).watchdog_s == every_s


def test_without_systemd_nothing_is_sent_and_nothing_fails():
    assert Notify.from_environ({}).ready()


def test_a_socket_that_is_gone_is_told_once_and_tried_on(tmp_path, caplog):
    notify = Notify(str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        assert not notify.ready()
        assert not notify.ready()
    assert len(caplog.records) == 1
