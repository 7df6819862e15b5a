"""Encoders on the Hugging Face Hub: pushed as a run's folder, loaded by `hf:OWNER/NAME`.

The repository holds the files of a run and a model card. Only these files are downloaded, and none
of them contains code.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NamedTuple

from orbithash.encoders.encoder import Encoder
from orbithash.encoders.runs.model_card import model_card
from orbithash.encoders.runs.record import RunRecord
from orbithash.encoders.runs.run_folder import (
    HUB,
    LOG,
    MODEL,
    RECORD,
    SCORES,
    load_run,
    read_record,
    read_values,
    save_run,
)
from orbithash.errors import InputError, MissingExtraError, ServerError
from orbithash.metrics.scores import Scores

DOWNLOADED = [MODEL, RECORD, LOG, SCORES]


class HubPlace(NamedTuple):
    """A repository on the hub, and its branch, tag or commit; None is the main branch."""

    repository: str
    revision: str | None = None


def hub_place(address: str) -> HubPlace:
    """Parse an address on the hub.

    >>> hub_place("hf:birds/codes@v1")
    HubPlace(repository='birds/codes', revision='v1')
    """
    repository, _, revision = address.removeprefix(HUB).partition("@")
    check_repository(repository)
    return HubPlace(repository, revision or None)


def check_repository(repository: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise InputError(
            f"{repository!r} names no repository on the hub; write OWNER/NAME, or to load one "
            f"{HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION"
        )


def load_from_hub(address: str) -> Encoder:
    """Download an encoder, or take it from the hub's cache on this computer, and load it."""
    place, hub = hub_place(address), hub_library()
    with reported(hub, place.repository):
        folder = hub.HfApi().snapshot_download(
            place.repository,
            revision=place.revision,
            allow_patterns=DOWNLOADED,
        )
    if not (Path(folder) / MODEL).exists():
        raise InputError(
            f"the repository {place.repository} has no {MODEL}; give one that push_to_hub wrote"
        )
    return load_run(folder)


def push_to_hub(
    encoder: Encoder,
    repository: str,
    *,
    scores: Scores | None = None,
    private: bool = False,
    license: str | None = None,
) -> str:
    """Create or update a repository with the encoder and a model card; return its address."""
    check_repository(repository)
    hub = hub_library()
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        save_run(encoder, folder)
        record = without_folders(read_record(folder))
        values = read_values(folder) | asdict(record)  # with the digest of the model's file
        (folder / RECORD).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        card = model_card(encoder, record, repository, scores=scores, license=license)
        (folder / "README.md").write_text(card, encoding="utf-8")
        with reported(hub, repository):
            client = hub.HfApi()
            client.create_repo(repository, private=private, exist_ok=True)
            client.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message=f"{encoder.n_bits}-bit encoder",
            )
    return HUB + repository


def without_folders(record: RunRecord) -> RunRecord:
    """Return the record with the names of sources and files, but not the folders they are in."""
    return replace(
        record,
        source=last_name(record.source),
        init=record.init and last_name(record.init),
        weights=record.weights and last_name(record.weights),
        unlabelled=record.unlabelled and last_name(record.unlabelled),
    )


def last_name(source: str) -> str:
    """Return a source without the folder that it is in.

    >>> last_name("data/photos/"), last_name("voc2007:data/VOCdevkit"), last_name("digits")
    ('photos', 'voc2007:VOCdevkit', 'digits')
    """
    kind, colon, path = source.rpartition(":")
    return kind + colon + Path(path).name


@contextmanager
def reported(hub: ModuleType, repository: str) -> Iterator[None]:
    """Turn the hub's errors into ours."""
    errors = hub.errors
    try:
        yield
    except errors.HFValidationError as error:
        raise InputError(f"{repository!r} cannot be a repository on the hub: {error}") from None
    except errors.RevisionNotFoundError:
        raise InputError(
            f"{repository} has no such revision; give one of its branches, tags or commits"
        ) from None
    except errors.RepositoryNotFoundError:
        raise InputError(
            f"there is no repository {repository} that you may use; check its name, and log in "
            "with `hf auth login` or set HF_TOKEN if it is private or yours"
        ) from None
    except (errors.HTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ServerError(
            f"the hub did not serve {repository} ({reason}); check the connection and the token, "
            "and repeat"
        ) from error


def hub_library() -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise MissingExtraError("hub") from None
    return huggingface_hub
