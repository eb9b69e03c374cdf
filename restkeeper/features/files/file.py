"""A JSON file and the schema beside it: both are read, and the file is written. A stamp tells when others write one."""

import ctypes
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import IO, Any, NamedTuple

import click

from restkeeper.features.files.reading import Content, FileError, parse
from restkeeper.storage.location import is_mount

SCHEMA = ".schema.json"  # ends the name of the schema beside a JSON file
EDITED = ".edited"  # ends the name of a version of the file that another program saved during a write

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux: <fcntl.h>, and <linux/fs.h>, see renameat2(2)

Stamp = tuple[int, ...]
Look = tuple[Stamp, Stamp]  # of the data, and of the schema


class File(NamedTuple):
    """The paths of two files, the `data` and its `schema`, and their content after a `look` at both."""

    data: Path
    schema: Path
    look: Look
    schema_source: bytes
    content: Content


def read_file(path: Path, id_name: str = "id") -> File:
    """The file, and the schema beside it. Raises FileError and OSError."""
    if not id_name or not id_name.isprintable() or {'"', "\\"} & {*id_name}:
        raise FileError(f'--id {id_name!r}: must be a name of printable characters, without " and \\')
    schema, look = path.with_suffix(SCHEMA), look_at(path)
    source = schema.read_bytes() if schema.is_file() else b""
    return File(path, schema, look, source, parse(path.read_bytes(), path.name, id_name))


def look_at(path: Path) -> Look:
    """The stamps of a file, and of the schema beside it. Raises OSError."""
    return stamp_of(path), stamp_of(path.with_suffix(SCHEMA))


def stamp_of(path: Path) -> Stamp:
    """A value that changes when a file is written; empty without a file. Raises OSError."""
    with suppress(FileNotFoundError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size, status.st_ino
    return ()


def access_of(path: Path) -> os.stat_result | None:
    """The mode and the owner of a file, if there is one."""
    with suppress(FileNotFoundError):
        return path.stat()
    return None


def can_be_replaced(path: Path) -> bool:
    """Whether a file can be replaced by another one: it is not mounted, as in a container, and its folder is writable.

    A file that cannot be replaced is written in place: a crash in the middle of that damages it.
    """
    return not is_mount(path) and os.access(os.path.dirname(os.path.realpath(path)), os.W_OK)


def write_file(path: Path, content: Content, stamp: Stamp, access: os.stat_result | None, in_place: bool) -> Stamp:
    """Write a file, or the target of a link, to the disk; its new stamp, empty if others wrote it. Raises OSError.

    A complete file replaces it, unless it is written `in_place`. If another program writes it between the last look and
    that moment, that version is kept beside it, where a file can have two names.
    """
    target, data = Path(os.path.realpath(path)), b"".join(content.text())
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if in_place:
        return _write_in_place(target, data) if stamp_of(path) in ((), stamp) else ()
    temporary, previous = (target.with_name(f".{target.name}.{end}") for end in ("tmp", "former"))
    for leftover in (temporary, previous):
        leftover.unlink(missing_ok=True)  # of a killed process: no other process writes, see `serve._lock`
    try:
        with temporary.open("xb") as file:
            if access and hasattr(os, "fchown"):  # not on Windows
                os.fchmod(file.fileno(), S_IMODE(access.st_mode))
                with suppress(PermissionError):
                    os.fchown(file.fileno(), access.st_uid, access.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = stamp_of(temporary)
        with suppress(OSError):
            os.link(target, previous)
        if stamp_of(path) not in ((), stamp):
            return ()
        if exchange(temporary, target):
            os.replace(temporary, previous)
        else:
            os.replace(temporary, target)
        if stamp_of(previous) not in ((), stamp):
            os.replace(previous, edited := target.with_name(target.name + EDITED))
            say(f"{path.name}: what was saved at the moment of a write is in {edited.name}")
    finally:
        temporary.unlink(missing_ok=True)
        previous.unlink(missing_ok=True)
    if os.name == "nt":  # where a folder is no file
        return written
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # before anything says that the file was written
    finally:
        os.close(folder)
    return written


def exchange(one: Path, other: Path) -> bool:
    """Give each of two files the name of the other, at one moment. False where only one can have a new name.

    So a file that another program puts in the place of the former one just before that is not lost.
    """
    rename: Any = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return bool(rename) and not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)


def _write_in_place(target: Path, data: bytes) -> Stamp:
    """Write a file that cannot be replaced; without space on the disk the file does not change. Raises OSError."""
    with target.open("r+b") as file:
        previous = file.read()
        try:
            if len(data) > len(previous) and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, len(data))
            _overwrite(file, data)
        except OSError:
            _overwrite(file, previous)
            raise
    return stamp_of(target)


def _overwrite(file: IO[bytes], data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


def say(*lines: str) -> None:
    """Print lines to standard error, indented after the first one; a name of a file can have any character."""
    printable = ("".join(char if char.isprintable() else repr(char)[1:-1] for char in line) for line in lines)
    click.echo("\n  ".join(printable), err=True)
