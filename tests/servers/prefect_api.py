"""A real Prefect server with a database of its own, for flows in this process and in children."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blocks.lifeline import free_port
from blocks.prefect_server import prefect_server


@contextmanager
def prefect_api(home: Path) -> Iterator[str]:
    """Run a server and yield its API address, which holds for this process's settings and for children's environment.

    Args:
        home: empty folder for the server's database and log; this process and its children keep their own.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with prefect_server(home, port=free_port()) as api:
        before = os.environ.get("PREFECT_API_URL")
        os.environ["PREFECT_API_URL"] = api
        try:
            with temporary_settings({PREFECT_API_URL: api}):
                yield api
        finally:
            os.environ.pop("PREFECT_API_URL")
            if before is not None:
                os.environ["PREFECT_API_URL"] = before
