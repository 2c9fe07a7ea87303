"""What a crash may leave behind, given a disk at one moment.

Power cut: of the name operations not yet synced any subset is gone (``ordered``: any suffix), and of each file's unsynced
operations each is kept, gone, torn at a prefix, or there in size but zero-filled. Kill -9: the system's view survives
with the write in flight torn, and what was not durable still is not: a power cut may yet take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, product

from .model import (
    FOLDER,
    Content,
    Cut,
    DataOp,
    Image,
    ModelDisk,
    NameOp,
    Op,
    Write,
    apply_bytes,
    apply_name,
    reachable,
)

COMBINATIONS = 300
"""Products of file variants up to this size are listed whole; beyond it one file varies at a time."""


def cuts(length: int, most: int) -> list[int]:
    """Return at most about *most* prefix lengths, both ends and their neighbours always among them."""
    step = max(1, length // most)
    return sorted({0, 1, length // 2, length - 1, *range(0, length, step)} & set(range(length)))


def fates(op: DataOp, most: int) -> Iterator[DataOp | None]:
    """Return what may become of one unsynced operation; None is lost."""
    yield op
    yield None
    if isinstance(op, Cut):
        return
    size = len(op.data)
    yield Write(op.node, op.offset, bytes(size))
    for cut in cuts(size, most):
        yield Write(op.node, op.offset, op.data[:cut])
    for cut in cuts(size, max(4, most // 8)):
        yield Write(op.node, op.offset, op.data[:cut] + bytes(size - cut))
        yield Write(op.node, op.offset, bytes(cut) + op.data[cut:])


def contents(file: Content, most: int) -> list[bytes]:
    """Return every content a power cut may leave in a file: whole first, all lost second."""
    found = {file.now: None, file.base: None}
    ops = [op for op, _ in file.pending]
    for index, op in enumerate(ops):
        last = index == len(ops) - 1
        earlier = product(*((other, None) for other in ops[:index])) if index <= 5 else [ops[:index]]
        for before, fate in product(earlier, list(fates(op, most if last else 4))):
            for after in (ops[index + 1 :], []):
                data = file.base
                for part in (*before, fate, *after):
                    if part is not None:
                        data = apply_bytes(data, part)
                found.setdefault(data)
    return list(found)


def name_sets(ops: list[NameOp], *, ordered: bool) -> Iterable[tuple[NameOp, ...]]:
    if ordered or len(ops) > 8:
        return [tuple(ops[:n]) for n in range(len(ops) + 1)]
    return chain.from_iterable(combinations(ops, n) for n in range(len(ops) + 1))


def power_cuts(disk: ModelDisk, most: int = 12) -> Iterator[Image]:
    """Return what may be found after the power fails now; *most* bounds the torn prefixes of a write."""
    seen: set[frozenset[tuple[str, bytes | None]]] = set()
    variants = {node: contents(file, most) for node, file in disk.files.items()}
    for kept in name_sets(disk.pending_names, ordered=disk.ordered):
        names = dict(disk.durable_names)
        for op in kept:
            apply_name(names, op)
        found = dict(reachable(names))
        nodes = sorted({node for node in found.values() if node != FOLDER})
        for choice in _choices([variants[node] for node in nodes]):
            data = dict(zip(nodes, choice, strict=True))
            image: Image = {path: None if node == FOLDER else data[node] for path, node in found.items()}
            key = frozenset(image.items())
            if key not in seen:
                seen.add(key)
                yield image


def _choices(variants: list[list[bytes]]) -> Iterator[tuple[bytes, ...]]:
    size = 1
    for options in variants:
        size *= len(options)
    if size <= COMBINATIONS:
        yield from product(*variants)
        return
    for whole in (0, 1):
        rest = [options[min(whole, len(options) - 1)] for options in variants]
        for index, options in enumerate(variants):
            for option in options:
                yield (*rest[:index], option, *rest[index + 1 :])


def kills(before: ModelDisk, op: Op | None, most: int = 12) -> Iterator[ModelDisk]:
    """Return the disks that a kill leaves: before *op*, and with *op* torn when it is a write."""
    yield before.copy()
    if isinstance(op, Write):
        for cut in cuts(len(op.data), most)[1:]:
            torn = before.copy()
            torn.perform(Write(op.node, op.offset, op.data[:cut]))
            torn.ops.clear()
            yield torn
