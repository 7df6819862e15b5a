import pytest
import torch
from torch import nn

from orbithash.training.state import Tally


class Loss(nn.Module):
    pass


class TripletLoss(nn.Module):
    active_share = 0.25
    n_triplets = 8


def test_bit_balance_is_1_for_even_bits_and_0_for_constant_ones():
    tally = Tally()
    tally.add(Loss(), torch.tensor(1.0), torch.tensor([[0.9, 0.9], [0.1, 0.9]]))
    tally.add(Loss(), torch.tensor(3.0), torch.tensor([[0.9, 0.9], [0.1, 0.9]]))
    assert tally.bit_balance() == pytest.approx(0.5)  # the first bit is even, the second constant
    assert tally.mean_loss() == 2.0
    assert tally.active_share() is None


def test_a_loss_that_counts_its_triplets_is_asked():
    tally = Tally()
    tally.add(TripletLoss(), torch.tensor(1.0), torch.rand(2, 4))
    tally.add(TripletLoss(), torch.tensor(1.0), torch.rand(2, 4))
    assert tally.active_share() == 0.25
    assert tally.n_triplets == 16
