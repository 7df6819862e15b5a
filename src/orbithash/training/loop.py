"""The training loop, for any method: a loss is a module called with embeddings and labels."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from orbithash.encoders import Epoch
from orbithash.errors import DivergedError, InputError
from orbithash.losses.teacher import takes_teacher
from orbithash.training.batches import Batch, BatchSource
from orbithash.training.checkpoint import Checkpoints, device_of
from orbithash.training.hooks import Hooks
from orbithash.training.machine.distributed import SINGLE_PROCESS, Processes
from orbithash.training.machine.environment import Interrupted, steady_threads
from orbithash.training.machine.memory import embed_in_parts
from orbithash.training.machine.precision import check_precision
from orbithash.training.optimization import (
    ParameterGroup,
    make_optimizer,
    scheduled_rate,
    set_rate,
    warmed_up,
)
from orbithash.training.settings import TrainingSettings
from orbithash.training.state import BestEpoch, Memory, TrainingState

logger = logging.getLogger(__name__)


@steady_threads()
def train_network(
    network: nn.Module,
    loss: nn.Module,
    source: BatchSource,
    settings: TrainingSettings,
    *,
    groups: Sequence[ParameterGroup] | None = None,
    validate: Callable[[], float] | None = None,
    hooks: Hooks | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
    part_size: int | None = None,
) -> list[Epoch]:
    """Train the network in place and return the metrics of each epoch.

    The caller initialises the network, seeds the batches, and seeds torch's generator for layers
    such as dropout.

    `validate` scores the network; higher is better. It is called every few epochs and after the
    last. The weights with the best score are kept, and training ends early after `patience` scores
    without an improvement.

    With `checkpoints`, training resumes from the last saved state, after passing its epochs to
    `hooks.after_epoch`, and saves the state from time to time. When `hooks.stopping` returns True,
    the state is saved and `Interrupted` raised; when `hooks.finishing` does, training ends at once
    and the best epoch so far is kept, if there is one. With `part_size`, a batch is embedded in
    parts of that size.
    """
    hooks = hooks or Hooks()
    check_precision(settings.precision, device_of(network).type)
    groups = groups or [ParameterGroup(tuple(network.parameters()))]
    optimizer = make_optimizer([*groups, ParameterGroup(tuple(loss.parameters()))], settings)
    best = BestEpoch(network, patience=settings.patience)
    state = TrainingState(
        network, loss, optimizer, Memory(settings.memory), best, part_size=part_size
    )
    processes.seed_by_rank()
    if checkpoints is not None and checkpoints.restore(state):
        for epoch in state.history:
            hooks.after_epoch(epoch)
    parallel = processes.parallel(network)

    def finish_early() -> bool:
        """Save a checkpoint if one is due, and raise if training is to stop.

        Returns whether to end now with the best epoch so far, if there is any.
        """
        stop, finish, save = processes.any_of(
            hooks.stopping(),
            hooks.finishing(),
            checkpoints is not None and checkpoints.due(),
        )
        finish = finish and bool(state.history)
        if checkpoints is not None and (stop or save):
            checkpoints.save(state)
        if stop and not finish:
            raise Interrupted
        return finish

    finished = bool(state.history) and processes.any_of(hooks.finishing())[0]
    while not finished and state.epoch < settings.epochs and not best.out_of_patience():
        rate = scheduled_rate(settings, state.epoch)
        started = time.perf_counter() - state.seconds
        network.train()
        for batch in source(state.epoch, state.batch):
            number = state.epoch * len(source) + state.batch
            set_rate(optimizer, warmed_up(rate, number, settings.warmup * len(source)))
            step(parallel, state, batch, settings, processes)
            state.batch += 1
            state.seconds = time.perf_counter() - started
            hooks.after_step(state.epoch + state.batch / len(source), state.totals.losses[-1])
            if finish_early():
                break
        if state.batch < len(source):  # ended within the epoch
            break

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
            loss=state.totals.mean_loss(),
            learning_rate=rate,
            active_share=state.totals.active_share(),
            bit_balance=state.totals.bit_balance(),
            validation_map=score,
            seconds=time.perf_counter() - started,
        )
        logger.info("epoch %d: loss %.4g", epoch.number, epoch.loss)
        if state.totals.n_triplets == 0:
            logger.warning(
                "no batch of epoch %d held a triplet, so nothing was learned; train with larger "
                "batches or more related images",
                epoch.number,
            )
        state.end_epoch(epoch)
        hooks.after_epoch(epoch)
        finished = finish_early()
    if checkpoints is not None:  # so that a run can be resumed if writing it is interrupted
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
    """Run one training step."""
    device = device_of(network)
    labels = processes.gather_constant(batch.labels).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        n_largest = len(batch.inputs)
        if state.part_size is not None:
            n_largest = max(processes.gather_objects(n_largest))
        own_embeddings = embed_in_parts(
            network, batch.inputs.to(device), state.part_size, n_largest
        )
    embeddings = processes.gather(own_embeddings.float())
    memory, teacher = state.memory, None
    others: dict[str, Any] = {}
    if memory.embeddings is not None:
        others = {"ref_emb": memory.embeddings, "ref_labels": memory.labels}
    if takes_teacher(state.loss):
        if batch.teacher is None:
            raise InputError(
                f"{type(state.loss).__name__} takes a teacher's vectors, and the batches have "
                "none; give them with each batch, or train with another loss"
            )
        teacher = processes.gather_constant(batch.teacher).to(device)
        others |= {"teacher": teacher, "ref_teacher": memory.teacher}
    # A loss may order ties at random: all processes must draw the same order. The factor is a prime
    # above the number of batches of an epoch.
    with processes.same_draws(state.epoch * 1_000_003 + state.batch):
        value: Tensor = state.loss(embeddings, labels, **others)
    memory.add(embeddings, labels, teacher)
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
    state.totals.add(state.loss, value, embeddings)
