"""Train a network, or fit a hasher, on arrays in memory: feature vectors or small images."""

import time
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float32, Int64

from orbithash.codes import binarize, pack
from orbithash.data import ImageSource, LabelledFeatures
from orbithash.encoders import Encoder, Epoch, FeatureEncoder
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.errors import InputError
from orbithash.losses.teacher import takes_teacher
from orbithash.metrics.scoring import evaluate_codes
from orbithash.networks import (
    ClassCodeHead,
    FeatureHead,
    HashingNetwork,
    embed,
    small_backbone,
)
from orbithash.training.batches import (
    Batch,
    InputViews,
    TensorBatches,
    several_views,
    single_views,
)
from orbithash.training.checkpoint import Checkpoints
from orbithash.training.heads.class_codes import (
    fit_class_codes,
    labelled_views,
    weights_and_scalars,
)
from orbithash.training.heads.second_path import add_second_path
from orbithash.training.hooks import Hooks
from orbithash.training.loop import step, train_network
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import seeded, steady_threads
from orbithash.training.methods import Method, TrainingPlan, plan_training, run_identity
from orbithash.training.optimization import ParameterGroup, make_optimizer
from orbithash.training.settings import TrainingSettings
from orbithash.training.state import BestEpoch, Memory, TrainingState


def train_on_arrays(
    data: LabelledFeatures,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    digest: str = "",
    backbone: str | None = None,
    init: Encoder | None = None,
    seed: int = 0,
    hooks: Hooks | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> tuple[FeatureEncoder, list[Epoch]]:
    """Train a network with a loss on the training rows, and keep its best epoch.

    The network is a head; for small images, a small backbone and a head. Queries are never used.
    Rows held out for validation choose the epoch, by the layers alone; without any, the last epoch
    is kept. A second path is fitted at the end, to the rows with labels. The rows held out, the
    initial weights and the batches depend on the seed and not on the method: two losses with one
    seed start from the same weights and see the same rows in the same order. If the data have
    several views of an image, each batch uses a random one. `digest` identifies the data in a
    checkpoint.
    """
    plan = plan_training(
        data.labels, data.split, method, n_bits, settings, seed=seed, classes=data.classes
    )
    n_train = len(plan.train)
    # The rows that train, then those that are held out.
    inputs = torch.from_numpy(data.features[np.concatenate([plan.train, plan.held_out])])
    with seeded(seed):
        views = training_views(data, plan.train, inputs[:n_train], seed=seed)
        network = initial_network(views, n_bits, settings, plan, backbone, init, seed)
        # A checkpoint is restored only into a run of equal identity.
        identity = run_identity(method, n_bits, settings, seed) | {
            "features": digest,
            "init": None if init is None else weights_digest(network),
        }

        def validation_map() -> float:
            codes = pack(binarize(embed(network, inputs).numpy()))
            return evaluate_codes(
                codes[n_train:],
                codes[: plan.n_labelled],
                plan.held_out_labels,
                plan.train_labels[: plan.n_labelled],
                n_bits=n_bits,
            ).map

        history = train_network(
            network,
            plan.loss,
            TensorBatches(
                views,
                torch.from_numpy(plan.train_labels),
                plan.batches,
                processes,
                with_teacher=takes_teacher(plan.loss),
            ),
            settings.scaled_to_batch_size(plan.batches.batch_size),
            groups=weights_and_scalars(network) if settings.head == "class-codes" else None,
            validate=validation_map if len(plan.held_out) else None,
            hooks=hooks,
            checkpoints=checkpoints and checkpoints.for_run(identity),
            processes=processes,
        )
        if settings.head == "two-paths" and method.from_labels and isinstance(network, FeatureHead):
            n = plan.n_labelled
            shortest = min((*method.nested, n_bits))
            add_second_path(network, inputs[:n], plan.train_labels[:n], shortest=shortest)
    return FeatureEncoder(network.eval(), inputs.shape[1:]), history


def fit_hasher(data: LabelledFeatures, method: Method, n_bits: int, *, seed: int) -> FeatureEncoder:
    """Fit a hasher to all training rows."""
    rows = data.split.train
    hasher = method.hasher(n_bits=n_bits, seed=seed)
    labels = data.labels[rows] if method.from_labels else None
    try:
        hasher.fit(data.features[rows].reshape(len(rows), -1), labels)
    except InputError:
        raise
    except ValueError as error:  # from scikit-learn or numpy
        reason = str(error).partition("\n")[0]
        raise InputError(f"{method.name} cannot be fitted: {reason}") from None
    return FeatureEncoder(hasher)


def training_views(
    data: LabelledFeatures,
    rows: Int64[np.ndarray, " n"],
    inputs: Float32[torch.Tensor, "n *shape"],
    *,
    seed: int,
) -> InputViews:
    """Return the features of these rows with their further views, where there are any."""
    if data.views is None:
        return single_views(inputs)
    position = np.full(len(data), -1)
    position[rows] = np.arange(len(rows))
    owners = position[data.views.of]
    kept = owners >= 0  # not the views of images that are held out
    views = torch.from_numpy(data.views.features[kept])
    return several_views(inputs, views, owners[kept], seed=seed)


def initial_network(
    views: InputViews,
    n_bits: int,
    settings: TrainingSettings,
    plan: TrainingPlan,
    backbone: str | None,
    init: Encoder | None,
    seed: int,
) -> FeatureHead | ClassCodeHead | HashingNetwork:
    """Return a network that is fitted to the inputs, or with the weights of another run."""
    inputs = views.inputs
    if backbone is not None:
        if init is not None:
            raise InputError("a backbone on arrays has random initial weights; leave init out")
        if settings.head == "class-codes":
            raise InputError(
                "class codes need features of a trained backbone; train with head=layers"
            )
        trunk = small_backbone(backbone, tuple(inputs.shape[1:]))
        return HashingNetwork(trunk, n_bits, hidden=settings.hidden, dropout=settings.dropout)
    if inputs.ndim != 2:
        raise InputError(
            f"got arrays of shape {tuple(inputs.shape)}; give vectors of shape (n, d), or a "
            "backbone for images"
        )
    head = empty_head(inputs.shape[1], n_bits, settings, plan)
    if init is not None:
        copy_head(init, head)
    elif isinstance(head, ClassCodeHead):
        fit_class_codes(head, *labelled_views(views, plan), n_images=plan.n_labelled, seed=seed)
    else:
        # Without a hidden layer this is the head of Chen et al., 2018, with torch's initial scale.
        head.fit_start(inputs, spread=settings.hidden > 0)
    return head


def empty_head(
    n_features: int, n_bits: int, settings: TrainingSettings, plan: TrainingPlan
) -> FeatureHead | ClassCodeHead:
    """Return a head of the kind that the settings name, before it is fitted to the features."""
    if settings.head == "class-codes":
        return ClassCodeHead(n_features, n_bits, int(plan.labels.max()) + 1)
    # A second path is added after training.
    return FeatureHead(n_features, n_bits, hidden=settings.hidden, dropout=settings.dropout)


def copy_head(init: Encoder, head: FeatureHead | ClassCodeHead) -> None:
    """Copy the weights of a head that was trained on features; the sizes must be equal.

    A second path is left out: it is fitted again after training.
    """
    if init.takes_images:
        raise InputError("the run to start from encodes images, not features; give another")
    source = init.network if isinstance(init, FeatureEncoder) else None
    if not isinstance(source, FeatureHead | ClassCodeHead):
        raise InputError("the run to start from holds a hasher; give one that trained a network")
    if type(source) is not type(head):
        raise InputError("the run to start from has a head of another kind; give the same --head")
    for name in ({"n_features"} | head.sizes.keys()) - {"dropout"}:
        if getattr(source, name) != getattr(head, name):
            raise InputError(
                f"the run to start from has {name}={getattr(source, name)}, but here it is "
                f"{getattr(head, name)}; train with the same features, classes, --bits and --hidden"
            )
    weights = source.state_dict().items()
    head.load_state_dict({k: v for k, v in weights if not k.startswith("second_path.")})


@steady_threads()
def predict_head_seconds(
    data: ImageSource | LabelledFeatures,
    n_features: int,
    method: Method,
    n_bits: int,
    settings: TrainingSettings,
    *,
    seed: int,
) -> float:
    """Predict the time to train a head from a few steps on random features."""
    plan = plan_training(
        data.labels, data.split, method, n_bits, settings, seed=seed, classes=data.classes
    )
    with seeded(seed):
        head = empty_head(n_features, n_bits, settings, plan)
        learned = [ParameterGroup(tuple(part.parameters())) for part in (head, plan.loss)]
        state = TrainingState(
            head,
            plan.loss,
            make_optimizer(learned, settings),
            Memory(settings.memory),
            BestEpoch(head, patience=settings.patience),
        )
        seconds = []
        for rows in islice(plan.batches(0), 4):
            inputs = torch.randn(len(rows), n_features)
            batch = Batch(inputs, torch.from_numpy(plan.train_labels[rows]), teacher=inputs)
            started = time.perf_counter()
            step(head, state, batch, settings, SINGLE_PROCESS)
            seconds.append(time.perf_counter() - started)
    per_step = float(np.median(seconds[1:] or seconds))  # the first step compiles the kernels
    return settings.epochs * len(plan.batches) * per_step
