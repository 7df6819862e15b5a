"""Power cuts: the states in which the files of a traced process can be after one.

What a process wrote to a file since it last forced it to disk is kept, lost or torn, each write for
itself. Names (created, renamed, removed) come to disk in their order, as in a journal, at the
latest when their folder is forced to disk. So a state is more hostile than most file systems are.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
LOST_ALTOGETHER = ("-shm",)  # memory that processes share, not a file


@dataclass
class File:
    """A file: what is on disk, and changes since: (offset, data), or (length, None) to cut it."""

    on_disk: bytearray = field(default_factory=bytearray)
    since: list[tuple[int, bytes | None]] = field(default_factory=list)

    def force(self) -> None:
        for offset, data in self.since:
            apply(self.on_disk, offset, data)
        self.since.clear()

    def whole(self) -> bytes:
        content = bytearray(self.on_disk)
        for offset, data in self.since:
            apply(content, offset, data)
        return bytes(content)

    def after_cut(self, rng: random.Random, keep: float) -> bytes:
        content = bytearray(self.on_disk)
        for offset, data in self.since:
            fate = rng.random()
            if fate < keep:
                apply(content, offset, data)
            elif data is not None and fate < keep + (1 - keep) / 3:  # torn at a sector
                apply(content, offset, data[: SECTOR * rng.randint(0, len(data) // SECTOR)])
        return bytes(content)


def apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
    content.extend(bytes(max(offset - len(content), 0)))
    if data:
        content[offset : offset + len(data)] = data


@dataclass(frozen=True)
class Event:
    kind: str
    fields: tuple[str, ...]
    data: bytes = b""


def read_trace(trace: Path) -> list[Event]:
    """Return all operations of a trace; the last one may be unfinished."""
    content, events, at = trace.read_bytes(), [], 0
    while (end := content.find(b"\n", at)) >= 0:
        kind, *fields = content[at:end].decode().split("\t")
        at = end + 1
        length = int(fields[2]) if kind == "write" else 0
        if at + length > len(content):
            break
        events.append(Event(kind, tuple(fields), content[at : at + length]))
        at += length
    return events


class Disk:
    """What a folder held, operation by operation."""

    def __init__(self, folder: Path) -> None:
        """Start with what is in the folder now, all of it on disk."""
        self.names: dict[str, File | None] = {}  # None: a folder
        for path in [folder, *folder.rglob("*")]:
            content = None if path.is_dir() else File(bytearray(path.read_bytes()))
            self.names[str(path)] = content
        self.names_on_disk = dict(self.names)
        self.changes: list[tuple[str, tuple[str, ...], File | None]] = []  # of names, since
        self.open: dict[str, File | None] = {}

    def again(self) -> "Disk":
        """Return a copy, with files of its own."""
        return copy.deepcopy(self)

    def play(self, event: Event) -> None:
        match event.kind, event.fields:
            case "open", (number, truncates, name):
                if name not in self.names:
                    self._change("create", (name,), File())
                self.open[number] = file = self.names[name]
                if file is not None and truncates == "1":
                    file.since.append((0, None))
            case "write", (number, offset, _):
                if (file := self.open.get(number)) is not None:
                    file.since.append((int(offset), event.data))
            case "truncate", (number, length):
                if (file := self.open.get(number)) is not None:
                    file.since.append((int(length), None))
            case "sync", (number,):
                if (file := self.open.get(number)) is not None:
                    file.force()
                else:  # a folder: the journal up to now
                    self.names_on_disk = dict(self.names)
                    self.changes.clear()
            case kind, names:
                self._change(kind, names)

    def _change(self, kind: str, names: tuple[str, ...], file: File | None = None) -> None:
        self.changes.append((kind, names, file))
        change(self.names, kind, names, file)

    def after_cut(self, rng: random.Random, keep: float) -> dict[str, bytes | None]:
        """Return the content of each file that is there after a power cut now, None for folders."""
        names = dict(self.names_on_disk)
        for kind, changed, file in self.changes[: rng.randint(0, len(self.changes))]:
            change(names, kind, changed, file)
        return {
            name: None if file is None else file.after_cut(rng, keep)
            for name, file in names.items()
            if not name.endswith(LOST_ALTOGETHER)
        }

    def content(self, path: Path) -> bytes:
        """Return what processes see in a file, or nothing if there is none."""
        file = self.names.get(str(path))
        return b"" if file is None else file.whole()


def change(
    names: dict[str, File | None], kind: str, changed: tuple[str, ...], file: File | None
) -> None:
    match kind, changed:
        case (("create" | "folder"), (name,)):
            names[name] = file
        case "remove", (name,):
            names.pop(name, None)
        case "rename", (old, new):
            moved = {name: names[name] for name in names if is_beneath(name, old)}
            for name in [name for name in names if is_beneath(name, old) or is_beneath(name, new)]:
                del names[name]
            names |= {new + name.removeprefix(old): each for name, each in moved.items()}


def is_beneath(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")


def write_state(state: dict[str, bytes | None], old: Path, new: Path) -> None:
    """Write files below the folder `old` as they are after a power cut, into the folder `new`."""
    for name, content in sorted(state.items()):
        path = new / Path(name).relative_to(old)
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.write_bytes(content)


def cuts(
    trace: Path, disk: Disk, *, n: int, seed: int
) -> Iterator[tuple[int, dict[str, bytes | None]]]:
    """Yield n power cuts at random moments: the number of operations before it, and the state.

    Meanwhile `disk`, which starts as before the trace, is as processes saw it at that moment.
    """
    events, rng = read_trace(trace), random.Random(seed)
    moments = sorted(rng.choices(range(1, len(events) + 1), k=n))
    for number, event in enumerate(events, start=1):
        disk.play(event)
        while moments and moments[0] == number:
            moments.pop(0)
            yield number, disk.after_cut(rng, rng.choice((0.0, 0.5, 0.9)))
