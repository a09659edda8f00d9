"""A TCP proxy that breaks answers off."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass
class Faults:
    """What the proxy does to the connections to come."""

    cut_after_bytes: int = 0
    cuts_left: int = 0
    cuts_made: int = 0


@contextmanager
def flaky_proxy(port: int) -> Iterator[tuple[int, Faults]]:
    """Forward to ``port`` and yield the proxy's own port and its faults, none at first."""
    faults = Faults()
    listener = socket.create_server(("127.0.0.1", 0))
    workers: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                worker = threading.Thread(target=_serve, args=(listener.accept()[0], port, faults), daemon=True)
                workers.append(worker)
                worker.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1], faults
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)


def _serve(client: socket.socket, port: int, faults: Faults) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        upward = threading.Thread(target=_pump, args=(client, server, None), daemon=True)
        upward.start()
        _pump(server, client, faults)


def _pump(source: socket.socket, target: socket.socket, faults: Faults | None) -> None:
    sent = 0
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if faults and faults.cuts_left and sent + len(data) > faults.cut_after_bytes:
                faults.cuts_left -= 1
                faults.cuts_made += 1
                target.sendall(data[: max(0, faults.cut_after_bytes - sent)])
                break
            target.sendall(data)
            sent += len(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
