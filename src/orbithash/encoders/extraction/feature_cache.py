"""The features extracted so far, in a folder of parts, so that extraction can be resumed."""

import json
import shutil
from pathlib import Path

import numpy as np

from orbithash.data.array_files import read_arrays
from orbithash.data.features import checked_strings
from orbithash.encoders.image_reading import NetworkOutputs
from orbithash.encoders.runs.fingerprints import changed_settings, parsed
from orbithash.errors import InputError
from orbithash.files import whole_file


class FeatureCache:
    """Parts by number, all with the same fingerprint; each is whole or missing."""

    def __init__(self, folder: Path, *, fingerprint: str, force: bool = False) -> None:
        """Create the folder or resume it; with `force`, replace parts of another fingerprint."""
        self.folder = folder
        self._fingerprint_file = folder / "made_with.json"
        cached = self._read_fingerprint()
        changed = changed_settings(cached, fingerprint).replace("images", "images, labels or split")
        if changed and self._parts() and not force:
            raise InputError(
                f"{folder} holds an unfinished run with other {changed}; start again "
                "with --force and without --resume, or give --out another name"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot create the folder {folder}: {error.strerror}; choose a writable location"
            ) from None
        if parsed(cached) != json.loads(fingerprint):
            # Parts are removed before the fingerprint changes, so that none gets a wrong one.
            for part in self._parts():
                part.unlink()
            with whole_file(self._fingerprint_file) as file:
                file.write(fingerprint.encode())

    def write(self, number: int, part: NetworkOutputs) -> None:
        with whole_file(self._file(number)) as file:
            np.savez(
                file,
                allow_pickle=False,
                features=part.features,
                readable=part.readable,
                reasons=np.array(part.reasons, dtype=str),
            )

    def read(self, number: int, *, n_views: int) -> NetworkOutputs:
        """Return a part of that many views; a damaged one is removed, to be computed again."""
        file = self._file(number)
        try:
            arrays = read_arrays(file, ("features", "readable", "reasons"))
            features, readable = arrays["features"], arrays["readable"]
            reasons = checked_strings("reasons", arrays["reasons"]) or ()
            n_readable = np.count_nonzero(readable)
            if features.dtype.kind != "f" or features.ndim != 2 or len(features) != n_readable:
                raise InputError(f"its features are {features.dtype} of shape {features.shape}")
            if readable.shape != (n_views,) or len(reasons) != n_views - n_readable:
                raise InputError(f"it is of {len(readable)} views instead of {n_views}")
        except (InputError, KeyError) as error:
            file.unlink(missing_ok=True)
            raise InputError(
                f"the features in {file} were damaged and have been removed ({error}); run the "
                "same command again to compute them again"
            ) from None
        return NetworkOutputs(features, readable.astype(bool), reasons)

    def __contains__(self, number: int) -> bool:
        return self._file(number).exists()

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def _file(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}.npz"

    def _parts(self) -> list[Path]:
        return list(self.folder.glob("shard-*.npz"))

    def _read_fingerprint(self) -> str:
        if not self._fingerprint_file.exists():
            return "{}"
        return self._fingerprint_file.read_text(encoding="utf-8", errors="replace")
