"""The training loop. It knows no method: a loss is any module called with embeddings and labels."""

import logging
import math
import time
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbithash.errors import DivergedError
from orbithash.training.batches import Batch, BatchSource
from orbithash.training.checkpoint import Checkpoints, device_of
from orbithash.training.distributed import ALONE, Processes
from orbithash.training.environment import Interrupted, steady_threads
from orbithash.training.history import Epoch
from orbithash.training.optimization import (
    ParameterGroup,
    make_optimizer,
    scheduled_rate,
    set_rate,
    warmed_up,
)
from orbithash.training.precision import check_precision
from orbithash.training.settings import TrainingSettings
from orbithash.training.state import BestEpoch, Memory, TrainingState

logger = logging.getLogger(__name__)


@steady_threads()
def train(
    network: nn.Module,
    loss: nn.Module,
    source: BatchSource,
    settings: TrainingSettings,
    *,
    groups: Sequence[ParameterGroup] | None = None,
    validate: Callable[[], float] | None = None,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
    after_step: Callable[[float, float], None] = lambda epochs, loss: None,
    checkpoints: Checkpoints | None = None,
    stopping: Callable[[], bool] = lambda: False,
    processes: Processes = ALONE,
) -> list[Epoch]:
    """Train the network in place and return what each epoch did.

    The random start of the network and the batches are the caller's, each with its own seed; what
    layers draw, as dropout does, comes from torch's generator, which the caller seeds too.

    `validate` scores the network as it is, the higher the better. It is asked every few epochs and
    after the last; the network is left as it was when it scored best, and training ends early when
    `patience` scores in a row were no better. `after_epoch` may save or show progress, and so may
    `after_step`, which is told how many epochs are done, with fractions, and the step's loss.

    With `checkpoints`, training goes on from the state that was saved last, `after_epoch` being
    told of the epochs before it, and the state is saved from time to time. As soon as `stopping`
    says so, it is saved once more and `Interrupted` is raised.
    """
    check_precision(settings.precision, device_of(network).type)
    groups = groups or [ParameterGroup(tuple(network.parameters()))]
    optimizer = make_optimizer([*groups, ParameterGroup(tuple(loss.parameters()))], settings)
    best = BestEpoch(network, patience=settings.patience)
    state = TrainingState(network, loss, optimizer, Memory(settings.memory), best)
    processes.draw_apart()
    if checkpoints is not None and checkpoints.restore(state):
        for epoch in state.history:
            after_epoch(epoch)
    parallel = processes.parallel(network)

    def pause() -> None:
        """What may happen between two steps: a checkpoint, the end."""
        stop, save = processes.agree(stopping(), checkpoints is not None and checkpoints.due())
        if checkpoints is not None and (stop or save):
            checkpoints.save(state)
        if stop:
            raise Interrupted

    while state.epoch < settings.epochs and not best.exhausted():
        rate = scheduled_rate(settings, state.epoch)
        started = time.perf_counter() - state.seconds
        network.train()
        for batch in source(state.epoch, state.batch):
            number = state.epoch * len(source) + state.batch
            set_rate(optimizer, warmed_up(rate, number, settings.warmup * len(source)))
            step(parallel, state, batch, settings, processes)
            state.batch += 1
            state.seconds = time.perf_counter() - started
            after_step(state.epoch + state.batch / len(source), state.tally.losses[-1])
            pause()

        score = None
        last = state.epoch + 1 == settings.epochs
        if validate is not None and (last or (state.epoch + 1) % settings.validate_every == 0):
            processes.share_buffers(network)
            try:
                score = validate()
            except Interrupted:
                if checkpoints is not None:
                    checkpoints.save(state)
                raise
            best.offer(score)
        epoch = Epoch(
            number=state.epoch,
            loss=state.tally.mean_loss(),
            learning_rate=rate,
            active_share=state.tally.active_share(),
            bit_balance=state.tally.bit_balance(),
            validation_map=score,
            seconds=time.perf_counter() - started,
        )
        logger.info("epoch %d: loss %.4g", epoch.number, epoch.loss)
        if state.tally.n_triplets == 0:
            logger.warning(
                "no batch of epoch %d held a triplet, so nothing was learned; train with larger "
                "batches or more related images",
                epoch.number,
            )
        state.end_epoch(epoch)
        after_epoch(epoch)
        pause()
    if checkpoints is not None:  # what comes after may be stopped too
        checkpoints.save(state)
    best.restore()
    return state.history


def step(
    network: nn.Module,
    state: TrainingState,
    batch: Batch,
    settings: TrainingSettings,
    processes: Processes,
) -> None:
    """Show the network a batch, and go a step down its loss."""
    device = device_of(network)
    labels = processes.gather_constant(batch.labels).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        share: Tensor = network(batch.inputs.to(device))
    embeddings = processes.gather(share.float())
    # Of equal distances the loss may draw which comes first: all processes must draw the same.
    with processes.drawing_together(state.epoch * 1_000_003 + state.batch):
        value = batch_loss(state.loss, embeddings, labels, state.memory)
    if not math.isfinite(value.item()):
        rate = state.optimizer.param_groups[0]["lr"]
        raise DivergedError(
            f"the loss became {value.item()} in epoch {state.epoch} at learning rate {rate:g}; "
            "train with a lower rate"
        )
    state.optimizer.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    if settings.clip:
        parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, settings.clip)
    state.optimizer.step()
    state.tally.add(state.loss, value, embeddings)


def batch_loss(
    loss: nn.Module, embeddings: Float[Tensor, "n bits"], labels: Tensor, memory: Memory
) -> Float[Tensor, ""]:
    if memory.embeddings is None:
        value: Tensor = loss(embeddings, labels)
    else:
        value = loss(embeddings, labels, ref_emb=memory.embeddings, ref_labels=memory.labels)
    memory.add(embeddings, labels)
    return value
