"""The chunked reader: what framing costs, where it ends, how often others get their turn."""

from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.http.errors import InvalidChunkSize, LimitRequestHeaders, ParseException
from gunicorn.http.unreader import IterUnreader

from restkeeper.server import chunked
from restkeeper.server.chunked import MOST_FRAMING, MOST_LINE, ChunkedReader

FIELDS = 100


def reader(*received: bytes) -> ChunkedReader:
    """A reader of what arrives in these pieces."""
    request = SimpleNamespace(limit_request_fields=FIELDS, parse_headers=lambda data, from_trailer: [data])
    return ChunkedReader(request, IterUnreader(received))


def test_framing_may_exceed_the_content_by_a_fixed_amount() -> None:
    """Chunks of one byte have five of framing: so many pass, one more does not."""
    most = (MOST_FRAMING - 5) // 4  # 5 n + 5 is at most n + MOST_FRAMING
    assert reader(b"1\r\na\r\n" * most + b"0\r\n\r\n").read(2**30) == b"a" * most
    with pytest.raises(InvalidChunkSize, match="framing"):
        reader(b"1\r\na\r\n" * (most + 1) + b"0\r\n\r\n").read(2**30)


def test_endless_framing_is_refused_when_it_is_too_much() -> None:
    """Of 15 MiB of one-byte chunks, no more is taken than it takes to see that."""
    taken = []

    def arriving() -> Any:
        for _ in range(15 * 2**20 // 8192):
            taken.append(8192)
            yield b"1\r\na\r\n" * (8192 // 6)

    request = SimpleNamespace(limit_request_fields=FIELDS)
    with pytest.raises(InvalidChunkSize):
        ChunkedReader(request, IterUnreader(arriving())).read(2**30)
    assert sum(taken) < 2 * MOST_FRAMING


def test_content_earns_framing() -> None:
    """Chunks of a fair size pass, however many there are."""
    assert len(reader(*[b"8\r\n" + b"a" * 8 + b"\r\n"] * 50_000).read(400_000)) == 400_000


def test_others_get_a_turn_with_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is decoded at a stretch than one piece from the socket holds."""
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
    """However the bytes are cut into pieces and read, the content is the same, and what follows is left."""
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
    """What passes a limit by one is refused with nothing more to come."""
    with pytest.raises(error):
        reader(*(content[at : at + cut] for at in range(0, len(content), cut))).read(9)
