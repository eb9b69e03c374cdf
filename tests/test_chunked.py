"""The chunked reader: limits of framing, the end of the content, and turns of other connections."""

from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.http.errors import InvalidChunkSize, LimitRequestHeaders, ParseException
from gunicorn.http.unreader import IterUnreader

from restkeeper.server import chunked
from restkeeper.server.chunked import MOST_FRAMING, MOST_LINE, ChunkedReader

FIELDS = 100


def reader(*received: bytes) -> ChunkedReader:
    """A reader that receives these pieces."""
    request = SimpleNamespace(limit_request_fields=FIELDS, parse_headers=lambda data, from_trailer: [data])
    return ChunkedReader(request, IterUnreader(received))


def test_framing_may_exceed_the_content_by_a_fixed_amount() -> None:
    """Chunks of one byte have five bytes of framing: a fixed number is accepted, one more is not."""
    most = (MOST_FRAMING - 5) // 4  # 5 n + 5 is at most n + MOST_FRAMING
    assert reader(b"1\r\na\r\n" * most + b"0\r\n\r\n").read(2**30) == b"a" * most
    with pytest.raises(InvalidChunkSize, match="framing"):
        reader(b"1\r\na\r\n" * (most + 1) + b"0\r\n\r\n").read(2**30)


def test_endless_framing_is_refused_early() -> None:
    """Of 15 MiB of one-byte chunks, only the bytes up to the limit are read."""
    taken = []

    def arriving() -> Any:
        for _ in range(15 * 2**20 // 8192):
            taken.append(8192)
            yield b"1\r\na\r\n" * (8192 // 6)

    request = SimpleNamespace(limit_request_fields=FIELDS)
    with pytest.raises(InvalidChunkSize):
        ChunkedReader(request, IterUnreader(arriving())).read(2**30)
    assert sum(taken) < 2 * MOST_FRAMING


def test_larger_chunks_have_no_limit() -> None:
    """Chunks of a normal size are accepted, however many there are."""
    assert len(reader(*[b"8\r\n" + b"a" * 8 + b"\r\n"] * 50_000).read(400_000)) == 400_000


def test_other_connections_get_a_turn_after_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one piece from the socket is decoded at a time."""
    turns = []
    monkeypatch.setattr(chunked.gevent, "sleep", turns.append)
    pieces = [b"2\r\nab\r\n" * 10] * 50
    assert len(reader(*pieces, b"0\r\n\r\n").read(2**30)) == 1000
    assert turns == [0] * 51


@pytest.mark.parametrize(
    ("content", "size", "rest"),
    [
        (b"5\r\nabcde\r\n0\r\n\r\nnext", 2, b"next"),
        (b"1;" + b"x" * (MOST_LINE - 3) + b"\r\na\r\n0\r\n\r\n", 9, b""),
        (b"1\r\na\r\n0\r\n" + b"X: " + b"x" * (MOST_LINE - 4) + b"\r\n\r\n", 9, b""),
        (b'000000000000001 \t; x = "y\\"" ;z\r\na\r\n0\r\n' + b"X: y\r\n" * FIELDS + b"\r\n", 9, b""),
    ],
)
@pytest.mark.parametrize("cut", [1, 7, 8192])
def test_read(content: bytes, size: int, rest: bytes, cut: int) -> None:
    """However the bytes are split and read, the content is the same, and the bytes after it remain."""
    source = reader(*(content[at : at + cut] for at in range(0, len(content), cut)))
    found = []
    while part := source.read(size):
        assert len(part) <= size
        found.append(part)
    assert b"".join(found) in (b"a", b"abcde")
    assert source.length == 0 and source.read(1) == b""
    assert source._unreader.take_buffered() + b"".join(source._unreader.iter or []) == rest


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"1;" + b"x" * (MOST_LINE - 2) + b"\r\na\r\n", InvalidChunkSize),
        (b"0\r\nX: " + b"x" * (MOST_LINE - 3) + b"\r\n", InvalidChunkSize),
        (b"0\r\n" + b"X: y\r\n" * (FIELDS + 1), LimitRequestHeaders),
        (b"0" * 17, InvalidChunkSize),
    ],
)
@pytest.mark.parametrize("cut", [1, 8192])
def test_one_more_is_refused_at_once(content: bytes, error: type[ParseException], cut: int) -> None:
    """A body that exceeds a limit by one is refused before more bytes arrive."""
    with pytest.raises(error):
        reader(*(content[at : at + cut] for at in range(0, len(content), cut))).read(9)
