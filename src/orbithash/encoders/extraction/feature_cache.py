"""Unfinished features, kept in a folder of shards, so that a run can be taken up again."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32

from orbithash.encoders.runs.fingerprints import changed_settings
from orbithash.errors import InputError
from orbithash.files import whole_file


@dataclass(frozen=True, eq=False)
class Shard:
    """What consecutive images gave: features if they could be read, or else the reason."""

    features: Float32[np.ndarray, "readable d"]
    readable: Bool[np.ndarray, " n"]
    reasons: tuple[str, ...]


class ShardFolder:
    """Shards by number, all made with the same settings; each is whole or not there."""

    def __init__(self, folder: Path, *, made_with: str, force: bool = False) -> None:
        """Begin a folder, or go on with one; with `force`, one of other settings starts anew."""
        self.folder = folder
        self._settings = folder / "made_with.json"
        if self._shards() and not force:
            self._check_settings(made_with)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {folder}: {error.strerror}; "
                "give a place that can be written"
            ) from None
        if self._read_settings() != made_with:
            # Shards go before the settings change, so that none is ever taken for what it is not.
            for shard in self._shards():
                shard.unlink()
            with whole_file(self._settings) as file:
                file.write(made_with.encode())

    def write(self, number: int, shard: Shard) -> None:
        with whole_file(self._file(number)) as file:
            np.savez(
                file,
                allow_pickle=False,
                features=shard.features,
                readable=shard.readable,
                reasons=np.array(shard.reasons, dtype=str),
            )

    def read(self, number: int) -> Shard:
        with np.load(self._file(number), allow_pickle=False) as arrays:
            return Shard(arrays["features"], arrays["readable"], tuple(arrays["reasons"].tolist()))

    def __contains__(self, number: int) -> bool:
        return self._file(number).exists()

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def _file(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}.npz"

    def _shards(self) -> list[Path]:
        return list(self.folder.glob("shard-*.npz"))

    def _read_settings(self) -> str | None:
        return self._settings.read_text() if self._settings.exists() else None

    def _check_settings(self, made_with: str) -> None:
        if changed := changed_settings(self._read_settings() or "{}", made_with):
            raise InputError(
                f"{self.folder} holds an unfinished run with other {changed}; add --force to "
                "start anew, or give --out another name"
            )
