"""``scopeflow serve``: servers for a machine of one's own."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import click

from flows.cli_common import json_option, print_json, say, writable_folder

_S3_EXAMPLES = """\b
Examples:
  scopeflow serve s3
  scopeflow serve s3 media --bucket archive --port 9000
  AWS_ACCESS_KEY_ID=mykey AWS_SECRET_ACCESS_KEY=... scopeflow serve s3 media

Each folder in DIR is a bucket and each file an object. The server listens on this machine only."""


@click.group()
def serve() -> None:
    """Run a server of ScopeFlow in the foreground, until Ctrl-C."""


@serve.command(epilog=_S3_EXAMPLES)
@click.argument("folder", metavar="[DIR]", default="scopeflow-s3", type=click.Path(file_okay=False, path_type=Path))
@click.option("--bucket", default="scopeflow", show_default=True, help="Bucket to make if it is not there.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port; a free one if not given.")
@json_option
def s3(folder: Path, bucket: str, port: int, as_json: bool) -> None:
    """Serve a folder over S3, for trials without a cloud.

    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are taken from the environment if both are set, and made up otherwise.
    """
    from blocks.s3_server import serve_s3

    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    own = bool(key and secret)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with serve_s3(
        writable_folder(folder),
        bucket=bucket,
        port=port,
        access_key_id=key if own else None,
        secret_access_key=secret if own else None,
    ) as config:
        environment = {"AWS_ENDPOINT_URL": str(config.endpoint_url)}
        if not own and config.secret_access_key is not None:  # made up here; the person needs them to get in
            environment["AWS_ACCESS_KEY_ID"] = str(config.access_key_id)
            environment["AWS_SECRET_ACCESS_KEY"] = config.secret_access_key.get_secret_value()
        _tell(environment, bucket, as_json)
        while not stop.wait(1.0):
            pass


def _tell(environment: dict[str, str], bucket: str, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Any] = {"bucket": bucket, "environment": environment}
        print_json(facts)
        return
    click.echo("In another terminal:")
    for name, value in environment.items():
        click.echo(f"  export {name}={value}")
    click.echo(f"  scopeflow analyze clip.mp4 --store s3://{bucket}/results")
    say("Ctrl-C stops the server; the files stay.")
