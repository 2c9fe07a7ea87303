"""Markdown that is shown while it is written; pure.

A finished block keeps its nodes: no line that comes later changes it, but for the target of a link that follows. Only
the last block is read again, and what a page is told is the difference.

A change is ``[path, keep, more, nodes]``: in the node that *path* leads to (places from the top, counted without tag
and attributes), the first *keep* children stay, *more* is added to the text that is the last of them, and *nodes*
follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from transports.web.markdown import LONGEST, Node, Reading, blocks, plain

Change: TypeAlias = "list[list[int] | int | str | list[Node]]"

LONGEST_BLOCK = 20_000
"""Characters of a block that is read again with each piece. A longer one goes on as a block of its own."""


@dataclass(slots=True)
class LiveMarkdown:
    """The nodes of a text that grows: those of the finished blocks, and those of the block that is still written."""

    _all: str = ""
    _read: int = 0
    _start: int = 0
    _plain: bool = False
    _done: list[Node] = field(default_factory=list)
    _last: list[Node] = field(default_factory=list)
    _reading: Reading = field(default_factory=Reading)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that a page shows, as of the last `changes`."""
        return self._done + self._last

    def grow(self, piece: str) -> None:
        """Add a piece of the text. It is read when it is asked for."""
        self._all += piece

    def changes(self) -> list[Change]:
        """Return what differs from the last time."""
        if self._read == len(self._all):
            return []
        new, self._read = self._all[self._read :], len(self._all)
        if len(self._all) > LONGEST:
            return self._go_on_plain(new)
        before, place = self._last, len(self._done)
        finished = self._finish()
        self._last = [node for _, node in blocks(self._all[self._start :], self._reading.copy(), live=True)]
        self._done += finished
        return [*_difference(before, [*finished, *self._last], place)]

    def _finish(self) -> list[Node]:
        """Return the nodes of the blocks that no further line can change, and begin after them from now on."""
        end = self._all.rfind("\n", self._start) + 1
        found = blocks(self._all[self._start : end], self._reading.copy(), live=True) if end else []
        if not found:
            return []
        lines, (first, last) = self._all[self._start : end].splitlines(keepends=True), found[-1]
        if end - self._start > LONGEST_BLOCK and not _is_code(last):
            first = len(lines)
        finished = "".join(lines[:first])
        self._start += len(finished)
        return [node for _, node in blocks(finished, self._reading)] if first else []

    def _go_on_plain(self, new: str) -> list[Change]:
        self._done, self._last = plain(self._all), []
        if self._plain:
            return [[[0], 1, new, []]]
        self._plain = True
        return [[[], 0, "", self._done]]


def _is_code(node: Node) -> bool:
    return isinstance(node, list) and node[0] == "pre"


def _difference(
    old: Sequence[Node], new: Sequence[Node], first: int, path: tuple[int, ...] = ()
) -> Iterator[Change]:
    """Yield the changes that make the children *new* of *old*. The first of them has the place *first*."""
    same = next(
        (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]),
        min(len(old), len(new)),
    )
    rest = [*new[same + 1 :]]
    match old[same:], new[same : same + 1]:
        case [[str(before)], [str(after)]] if after.startswith(before):
            yield [[*path], first + same + 1, after[len(before) :], rest]
        case [[[tag, attributes, *inside]], [[now, given, *more]]] if (tag, attributes) == (now, given):
            yield from _difference(
                cast("list[Node]", inside), cast("list[Node]", more), 0, (*path, first + same)
            )
            if rest:
                yield [[*path], first + same + 1, "", rest]
        case [[], []]:
            pass
        case _:
            yield [[*path], first + same, "", [*new[same:]]]
