"""Train on a folder of class folders, save the run, and score it.

python examples/1_train_on_your_photos.py photos/ runs/photos
"""

import sys

import orbithash


def main(photos: str, out: str, backbone: str = "efficientnet-lite0", epochs: str = "20") -> None:
    encoder = orbithash.train(
        photos, bits=32, backbone=backbone, epochs=int(epochs), out=out, resume=True
    )
    for epoch in encoder.history:
        print(f"epoch {epoch.number + 1}: loss {epoch.loss:.4f}")
    print(f"MAP of the queries: {orbithash.evaluate(encoder, photos).map:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
