"""Prefect blocks that name a store; media are read through them, and results, also Prefect's own, written."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from prefect.filesystems import WritableFileSystem
from prefect.utilities.asyncutils import run_sync_in_worker_thread
from pydantic import Field, SecretStr

from blocks.access import LOCAL_STORE_SLUG, S3_STORE_SLUG, AccessConfig, LocalConfig, S3Config, StoreAccess
from blocks.access_open import open_access
from tasks.records.errors import ConfigurationError, MediaNotFound


class MediaStore(WritableFileSystem, ABC):
    """A store, named by a block. Saved under a name it also serves as a flow's or task's ``result_storage``."""

    @abstractmethod
    def config(self) -> AccessConfig:
        """Return what a child process needs to open the same store; ``blocks.access.revealed`` makes it JSON."""

    def access(self) -> StoreAccess:
        """Open the store; nothing is sent before its first use."""
        return open_access(self.config())

    @staticmethod
    def _key(path: str) -> str:
        """Return the key of a result: Prefect names failures by a bare random id, which would litter the root."""
        return path if "/" in path else f"results/unnamed/{path}"

    # Prefect's result store calls `aread_path(path)` from async code and `read_path(path, _sync=True)` from sync code,
    # and takes any exception from reading as "no result there".
    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """Return the content at a key under the root; an absent one raises ``FileNotFoundError``."""
        access = self.access()
        try:
            return access.read_bytes(access.uri_of(self._key(path)))
        except MediaNotFound as error:
            raise FileNotFoundError(error.message) from None

    async def aread_path(self, path: str) -> bytes:
        """Return the content at a key under the root; an absent one raises ``FileNotFoundError``."""
        return await run_sync_in_worker_thread(self.read_path, path)

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> str:  # type: ignore[override]
        """Write content atomically at a key under the root and return its URI."""
        return self.access().write_bytes(self._key(path), content)

    async def awrite_path(self, path: str, content: bytes) -> str:
        """Write content atomically at a key under the root and return its URI."""
        return await run_sync_in_worker_thread(self.write_path, path, content)

    async def get_directory(self, from_path: str | None = None, local_path: str | None = None) -> None:
        """Refuse: a store does not hold flow code."""
        raise _no_flow_code()

    async def put_directory(
        self, local_path: str | None = None, to_path: str | None = None, ignore_file: str | None = None
    ) -> None:
        """Refuse: a store does not hold flow code."""
        raise _no_flow_code()

    def _resolve_path(self, path: str) -> None:
        """Tell Prefect's result store that keys stand as they are, also for a block that is not saved."""

    @staticmethod
    def named(name: str) -> "MediaStore":
        """Load a saved store.

        Args:
            name: the block's name, or ``slug/name`` as Prefect's UI shows it.

        Errors: those of ``find``; ``ConfigurationError`` where no store of that name is saved.
        """
        store = MediaStore.find(name)
        if store is None:
            raise ConfigurationError(
                f"No store block is named {name!r}; save one in Prefect's UI under Blocks, as "
                f"{' or '.join(repr(kind.get_block_type_name()) for kind in STORE_KINDS)}"
            )
        return store

    @staticmethod
    def find(name: str) -> "MediaStore | None":
        """Load a saved store; None where no store of that name is saved.

        Args:
            name: as for ``named``.

        Errors: ``ConfigurationError`` where its fields are wrong, or Prefect's API does not answer.
        """
        slug, _, bare = name.rpartition("/")
        for kind in STORE_KINDS:
            if slug and slug != kind.get_block_type_slug():
                continue
            load: Any = kind.load  # `_sync` is the dispatcher's argument, not the method's
            try:
                store: MediaStore = load(bare, _sync=True)
            except ValueError as error:
                if "Unable to find block document" in str(error):
                    continue
                raise ConfigurationError(f"The store block {name!r} cannot be used: its fields are wrong") from None
            except Exception as error:
                raise ConfigurationError(
                    f"The store block {name!r} cannot be loaded ({type(error).__name__}); check PREFECT_API_URL and "
                    "that the Prefect server runs"
                ) from None
            return store
        return None


class S3MediaStore(MediaStore):
    """Media and results in an S3-compatible bucket: AWS, Ceph RADOS Gateway, rclone and others."""

    _block_type_name: ClassVar[str] = "ScopeFlow S3 store"
    _block_type_slug: ClassVar[str] = S3_STORE_SLUG
    _description: ClassVar[str] = "Media and results in an S3-compatible bucket."

    bucket: str = Field(title="Bucket", description="Bucket that holds the results; it must exist", min_length=1)
    prefix: str = Field(default="", title="Prefix", description="Folder of the bucket under which results are written")
    endpoint_url: str | None = Field(
        default=None, title="Endpoint", description="Address of the S3 server; empty for AWS or AWS_ENDPOINT_URL"
    )
    region: str = Field(default="us-east-1", title="Region", description="Region of the bucket")
    access_key_id: str | None = Field(
        default=None, title="Access key", description="Empty to use AWS_ACCESS_KEY_ID or the machine's own role"
    )
    secret_access_key: SecretStr | None = Field(
        default=None, title="Secret key", description="Secret of the access key; Prefect stores it encrypted"
    )
    connect_timeout_s: float = Field(
        default=10.0, gt=0, title="Connect timeout (s)", description="Longest wait for a connection"
    )
    read_timeout_s: float = Field(default=30.0, gt=0, title="Read timeout (s)", description="Longest wait for bytes")
    max_attempts: int = Field(default=2, ge=1, le=20, title="Attempts", description="How often a request is tried")

    def config(self) -> S3Config:
        """Return how the bucket is reached."""
        return S3Config(**{name: getattr(self, name) for name in S3Config.model_fields if name != "kind"})


class LocalMediaStore(MediaStore):
    """Media and results in a folder of this machine, or of a file system that all workers mount."""

    _block_type_name: ClassVar[str] = "ScopeFlow local store"
    _block_type_slug: ClassVar[str] = LOCAL_STORE_SLUG
    _description: ClassVar[str] = "Media and results in a folder."

    root: str = Field(title="Root folder", description="Folder under which results are written", min_length=1)

    def config(self) -> LocalConfig:
        """Return where the folder lies."""
        return LocalConfig(root=self.root)


STORE_KINDS: tuple[type[MediaStore], ...] = (S3MediaStore, LocalMediaStore)


def _no_flow_code() -> ConfigurationError:
    return ConfigurationError("A ScopeFlow store holds media and results, not flow code; install the package instead")
