"""The reader of chunked content: the limit of framing, and turns of other connections."""

from types import SimpleNamespace

import pytest
from gunicorn.http.errors import InvalidChunkSize
from gunicorn.http.unreader import IterUnreader

from restkeeper.server import worker
from restkeeper.server.worker import MOST_FRAMING, BoundedChunks


def reader(*received: bytes) -> BoundedChunks:
    """A reader that receives these pieces."""
    return BoundedChunks(SimpleNamespace(), IterUnreader(received))


def test_framing_may_exceed_the_content_by_a_fixed_amount() -> None:
    """Chunks of one byte have five bytes of framing: so many are accepted, and not one more."""
    most = MOST_FRAMING // 4
    assert reader(b"1\r\na\r\n" * most + b"0\r\n\r\n").read(2**30) == b"a" * most
    with pytest.raises(InvalidChunkSize, match="framing"):
        reader(b"1\r\na\r\n" * (most + 1) + b"0\r\n\r\n").read(2**30)


def test_endless_framing_is_refused_early() -> None:
    """Of 15 MiB of one-byte chunks with an extension, only the bytes up to the limit are read."""
    pieces = iter([b"1;x\r\na\r\n" * 1024] * (15 * 128))
    with pytest.raises(InvalidChunkSize):
        BoundedChunks(SimpleNamespace(), IterUnreader(pieces)).read(2**30)
    assert len(list(pieces)) > 15 * 128 - 2 * MOST_FRAMING // 8192


@pytest.mark.parametrize("size", [8, 1000])
def test_larger_chunks_have_no_limit(size: int) -> None:
    """Chunks of a normal size are accepted, however many there are, and however they are split."""
    chunks = (b"%x\r\n" % size + b"a" * size + b"\r\n") * 20_000 + b"0\r\n\r\n"
    pieces = (chunks[start : start + 8191] for start in range(0, len(chunks), 8191))
    assert len(reader(*pieces).read(2**30)) == 20_000 * size


def test_other_connections_get_a_turn_after_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one piece from the socket is decoded at a time."""
    turns: list[float] = []
    monkeypatch.setattr(worker.gevent, "sleep", turns.append)
    pieces = [b"2\r\nab\r\n" * 10] * 50
    assert len(reader(*pieces, b"0\r\n\r\n").read(2**30)) == 1000
    assert turns == [0] * 51
