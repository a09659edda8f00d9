"""The embedded S3 server, stoppable and startable again on its port."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blocks.access import S3Config
from blocks.lifeline import free_port
from blocks.s3_server import rclone_program, serve_s3
from tasks.records.errors import ConfigurationError


def missing() -> str:
    """Say what is not installed; empty where everything is."""
    try:
        rclone_program()
    except ConfigurationError as error:
        return error.message
    return ""


@dataclass
class RcloneServer:
    """A running server; its objects are plain files and outlive it."""

    folder: Path
    port: int = field(default_factory=free_port)
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> S3Config:
        """Start on the port of before with the credentials of before."""
        return self._running.enter_context(
            serve_s3(self.folder, port=self.port, access_key_id="testkey0001", secret_access_key="testsecret0001")
        )

    def stop(self) -> None:
        """End the server."""
        self._running.close()


@contextmanager
def rclone_server(folder: Path) -> Iterator[tuple[RcloneServer, S3Config]]:
    """Run a server over ``folder`` and yield it with how to reach it."""
    server = RcloneServer(folder)
    try:
        yield server, server.start()
    finally:
        server.stop()
