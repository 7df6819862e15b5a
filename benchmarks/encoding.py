"""From image files to codes, against a plain PyTorch loop over the same files.

The plain loop opens each file with Pillow, decodes it whole, resizes, crops, and runs GoogLeNet
with a hash layer on contiguous float tensors, batch by batch, with the same number of threads and
no workers; its local response normalisation is torch's. The second ratio is against the same loop
with our GoogLeNet, whose normalisation is faster. Ours decodes JPEGs at a fraction of their size
where that suffices, in threads, while onnxruntime runs the network. Work done once per model, such
as its export, is not counted.

    python benchmarks/encoding.py [FOLDER]

The images are the folder's JPEGs, or synthetic photographs.
"""

import os

# Waiting threads must sleep: decoding and the network take turns on the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

from measure import at_least, best
from orbithash.codes import binarize, pack
from orbithash.data.transforms import read_view
from orbithash.encoders.extraction.extract import batch_sizes
from orbithash.encoders.image_reading import read_through_network
from orbithash.encoders.runtime import Runtime, run_by
from orbithash.networks import GoogLeNet, HashingNetwork, googlenet

N_IMAGES, N_BITS, BATCH = 64, 48, 32
REPEATS = 3
SAME_BITS = 0.999


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        files = sample_files(Path(sys.argv[1])) if len(sys.argv) > 1 else photographs(Path(folder))
        return compare(files)


def compare(files: list[Path]) -> int:
    network = random_network()
    view = network.backbone.view
    fast = run_by("onnxruntime", network, side=view.crop)

    def ours(run: Runtime = fast) -> np.ndarray:
        parts = read_through_network(
            files,
            partial(read_view, **asdict(view)),
            run,
            n_features=N_BITS,
            batch_sizes=batch_sizes(len(files), BATCH),
        )
        return pack(binarize(np.concatenate([part.features for part in parts])))

    plain_codes, our_codes = plain_loop(network, files), ours()
    # Decoding at a reduced size changes a few pixels and so a few bits; the runtime does not.
    same = np.mean(np.unpackbits(ours(run_by("torch", network, side=view.crop)) ^ our_codes) == 0)
    if same < SAME_BITS or np.mean(np.unpackbits(plain_codes ^ our_codes)) > 0.1:
        sys.exit(f"encoding: only {same:.4f} of the bits equal those of torch")
    network = network.to(memory_format=torch.contiguous_format)

    def plain() -> None:
        with mock.patch.object(googlenet, "normalise_across_channels", torch_normalisation):
            plain_loop(network, files)

    plain_time, same_network_time, our_time = best(
        plain, lambda: plain_loop(network, files), ours, repeats=REPEATS
    )
    print(
        f"encoding, {len(files)} JPEGs, GoogLeNet to {N_BITS} bits, {torch.get_num_threads()} "
        f"threads: {len(files) / our_time:.1f} images per second"
    )
    passed = at_least("times a plain PyTorch loop", plain_time / our_time, 3)
    passed &= at_least("times the same loop with our GoogLeNet", same_network_time / our_time, 2)
    return 0 if passed else 1


def torch_normalisation(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)


@torch.inference_mode()
def plain_loop(network: HashingNetwork, files: list[Path]) -> np.ndarray:
    """Encode as a first, simple version would."""
    codes = []
    for start in range(0, len(files), BATCH):
        images = []
        for file in files[start : start + BATCH]:
            image = Image.open(file).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
            pixels = torch.from_numpy(np.array(image.crop((16, 16, 240, 240))))
            images.append(pixels.permute(2, 0, 1).float().contiguous())
        codes.append(pack(binarize(network(torch.stack(images)).numpy())))
    return np.concatenate(codes)


def random_network() -> HashingNetwork:
    """Return GoogLeNet with random weights that keep activations from vanishing."""
    torch.manual_seed(0)
    network = HashingNetwork(GoogLeNet(), N_BITS).eval()
    for weight in network.backbone.parameters():
        if weight.ndim == 4:
            torch.nn.init.kaiming_normal_(weight, nonlinearity="relu")
    return network


def sample_files(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.jpg"))
    if not files:
        sys.exit(f"encoding: there are no .jpg files in {folder}")
    return files[:: max(1, len(files) // N_IMAGES)][:N_IMAGES]


def photographs(folder: Path) -> list[Path]:
    """Write images of 500 × 375 pixels, the size of VOC2007's, with detail at several scales."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(N_IMAGES):
        pixels = np.zeros((375, 500, 3))
        for scale in (4, 16, 64):
            noise = rng.integers(0, 256, (375 // scale + 1, 500 // scale + 1, 3), dtype=np.uint8)
            layer = Image.fromarray(noise).resize((500, 375), Image.Resampling.BILINEAR)
            pixels += np.asarray(layer) / 3
        files.append(folder / f"{number}.jpg")
        Image.fromarray(pixels.astype(np.uint8)).save(files[-1], quality=90)
    return files


if __name__ == "__main__":
    sys.exit(main())
