import pytest
import torch
from torch import nn

from orbithash.training.state import BestEpoch, EpochTotals, Memory


def test_the_oldest_are_forgotten_first():
    memory = Memory(3)
    for number in range(4):
        memory.add(torch.full((2, 4), float(number), requires_grad=True), torch.full((2,), number))
    assert memory.labels.tolist() == [2, 3, 3]
    assert memory.embeddings[:, 0].tolist() == [2.0, 3.0, 3.0]
    assert not memory.embeddings.requires_grad


def test_the_weights_of_the_best_score_come_back():
    network = nn.Linear(1, 1, bias=False)
    best = BestEpoch(network, patience=3)
    for weight, score in ((1.0, 0.2), (2.0, 0.5), (3.0, 0.4)):
        nn.init.constant_(network.weight, weight)
        best.offer(score)
    best.restore()
    assert network.weight.item() == 2.0


def test_patience_ends_after_so_many_scores_that_are_no_better():
    best = BestEpoch(nn.Linear(1, 1), patience=2)
    ended = []
    for score in (0.1, 0.3, 0.3, 0.2):
        best.offer(score)
        ended.append(best.out_of_patience())
    assert ended == [False, False, False, True]


def test_without_scores_the_network_stays_as_it_is():
    network = nn.Linear(1, 1, bias=False)
    best = BestEpoch(network, patience=1)
    nn.init.constant_(network.weight, 7.0)
    best.restore()
    assert torch.equal(network.weight, torch.tensor([[7.0]]))
    assert not best.out_of_patience()


class Loss(nn.Module):
    pass


class TripletLoss(nn.Module):
    active_share = 0.25
    n_triplets = 8


def test_bit_balance_is_1_for_even_bits_and_0_for_constant_ones():
    totals = EpochTotals()
    totals.add(Loss(), torch.tensor(1.0), torch.tensor([[0.9, 0.9], [0.1, 0.9]]))
    totals.add(Loss(), torch.tensor(3.0), torch.tensor([[0.9, 0.9], [0.1, 0.9]]))
    assert totals.bit_balance() == pytest.approx(0.5)  # the first bit is even, the second constant
    assert totals.mean_loss() == 2.0
    assert totals.active_share() is None


def test_a_loss_that_counts_its_triplets_is_asked():
    totals = EpochTotals()
    totals.add(TripletLoss(), torch.tensor(1.0), torch.rand(2, 4))
    totals.add(TripletLoss(), torch.tensor(1.0), torch.rand(2, 4))
    assert totals.active_share() == 0.25
    assert totals.n_triplets == 16
