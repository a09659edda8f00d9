"""`make stack`: a Prefect server, an embedded S3 server and the blocks that name it, until Ctrl-C.

What a user needs in another terminal is printed: the UI's address and the environment of `scopeflow` and Prefect.
The S3 secret is drawn once and kept in `.scopeflow/stack/secret`, readable by its owner alone.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from blocks.access import S3Config
from blocks.prefect_server import prefect_server
from blocks.s3_server import serve_s3
from tasks.records.errors import ScopeFlowError, StoreUnavailable

STATE = Path(".scopeflow") / "stack"
BUCKET = "scopeflow"
ACCESS_KEY = "scopeflow0"
_UI_PORT = 4200
_S3_PORT = 9000
_SAVE_TIMEOUT_S = 180.0
_SAVE_STORE = """
import os
from blocks.media_store import S3MediaStore
S3MediaStore(
    bucket=os.environ["STACK_BUCKET"],
    endpoint_url=os.environ["STACK_ENDPOINT"],
    access_key_id=os.environ["STACK_KEY"],
    secret_access_key=os.environ["STACK_SECRET"],
).save("default", overwrite=True)
"""


def main() -> int:
    """Run the stack until Ctrl-C or SIGTERM."""
    STATE.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it, also while the servers start
    try:
        with (
            suppress(KeyboardInterrupt),
            serve_s3(
                (STATE / "s3").resolve(),
                bucket=BUCKET,
                port=_S3_PORT,
                access_key_id=ACCESS_KEY,
                secret_access_key=_secret(),
            ) as s3,
            prefect_server((STATE / "prefect").resolve(), port=_UI_PORT) as api,
        ):
            _save_store_block(api, s3)
            _tell(api, s3)
            while True:
                time.sleep(3600)
    except ScopeFlowError as error:
        print(f"make stack: {error.message}", file=sys.stderr)
        return 1
    return 0


def _secret() -> str:
    path = STATE / "secret"
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(20))
    return path.read_text(encoding="ascii").strip()


def _save_store_block(api: str, s3: S3Config) -> None:
    """Save the store as block `default` in a process of its own, whose Prefect talks to the new server.

    Errors: ``StoreUnavailable`` where that fails; its output is in a log.
    """
    assert s3.secret_access_key is not None
    assert s3.endpoint_url is not None
    environment = {
        **os.environ,
        "PREFECT_API_URL": api,
        "STACK_BUCKET": s3.bucket,
        "STACK_ENDPOINT": s3.endpoint_url,
        "STACK_KEY": s3.access_key_id or "",
        "STACK_SECRET": s3.secret_access_key.get_secret_value(),
    }
    log = (STATE / "store-block.log").resolve()
    with log.open("wb") as output:
        try:
            subprocess.run(
                [sys.executable, "-c", _SAVE_STORE],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
                timeout=_SAVE_TIMEOUT_S,
            )
        except subprocess.SubprocessError:
            raise StoreUnavailable(f"the store block could not be saved; why is in {log}") from None


def _tell(api: str, s3: S3Config) -> None:
    print(
        f"""
Prefect UI          {api.removesuffix("/api")}
S3                  {s3.endpoint_url}, bucket {BUCKET}, plain files in {(STATE / "s3" / BUCKET).resolve()}
S3 access           key {ACCESS_KEY}, secret in {STATE / "secret"}
Store block         default

In another terminal:
    export PREFECT_API_URL={api}
    .venv/bin/scopeflow analyze MEDIA --store default

Ctrl-C stops both servers; what they hold stays in {STATE}.
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
