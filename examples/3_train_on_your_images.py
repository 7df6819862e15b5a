"""Fine-tune a network on a folder of class folders, score it, and save it as a run.

    python examples/3_train_on_your_images.py photos/ runs/photos efficientnet-lite0

The command `orbithash train` does the same, keeps the split, and can be stopped and resumed.
"""

import sys
from dataclasses import asdict, replace
from pathlib import Path

from orbithash.data import class_folders
from orbithash.encoders import RunRecord, write_run
from orbithash.encoders.runs.run_folder import versions
from orbithash.evaluation import evaluate_encoder, mean_average_precision
from orbithash.networks import load_photo_backbone
from orbithash.training import IMAGE_PRESETS, Epoch, train_on_images

N_BITS = 32


def main(folder: str, out: str, backbone: str = "efficientnet-lite0", epochs: str = "20") -> None:
    if Path(out).exists():  # first: a name that is taken must not cost a training
        raise FileExistsError(out)
    images = class_folders(Path(folder))  # a split of its own: some of every class ask
    settings = replace(IMAGE_PRESETS["default"], epochs=int(epochs))
    trained = train_on_images(
        images,
        load_photo_backbone(backbone, to_train=True),
        "order-aware",
        N_BITS,
        settings,
        score=mean_average_precision,
        after_epoch=show,
    )
    print(f"MAP of its queries: {evaluate_encoder(trained.encoder, images).map:.4f}")

    Path(out).mkdir(parents=True)
    record = RunRecord(
        method="order-aware",
        n_bits=N_BITS,
        seed=0,
        preset="default",
        settings=asdict(settings),
        options={},
        source=folder,
        init=None,
        versions=versions(),
        backbone=backbone,
    )
    write_run(Path(out), trained.encoder, record, trained.outcome())


def show(epoch: Epoch) -> None:
    validation = "" if epoch.validation_map is None else f", validation {epoch.validation_map:.4f}"
    print(f"epoch {epoch.number + 1}: loss {epoch.loss:.4f}{validation}")


if __name__ == "__main__":
    main(*sys.argv[1:])
