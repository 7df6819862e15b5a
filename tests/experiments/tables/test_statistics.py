import numpy as np
import pytest
from scipy.stats import ttest_rel

from orbithash.experiments.tables.statistics import holm, paired_test, summarise


def test_the_paired_test_is_students():
    rng = np.random.default_rng(0)
    ours, others = rng.random(5), rng.random(5)
    test = paired_test(dict(enumerate(ours)), dict(enumerate(others)))
    assert test.p == pytest.approx(ttest_rel(ours, others).pvalue)
    assert test.difference == pytest.approx((ours - others).mean())


def test_only_seeds_that_both_have_are_compared():
    on_all_seeds = paired_test({0: 0.5, 1: 0.6, 2: 0.9}, {1: 0.5, 2: 0.4, 3: 0.1})
    assert on_all_seeds == paired_test({1: 0.6, 2: 0.9}, {1: 0.5, 2: 0.4})
    assert paired_test({0: 0.5, 1: 0.6}, {1: 0.5}) is None


def test_equal_differences_give_p_0_or_1():
    assert paired_test({0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.25}).p == 0
    assert paired_test({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}).p == 1


def test_one_seed_has_no_spread():
    assert summarise([0.5]).deviation is None


def test_several_tests_raise_each_p_value():
    assert holm({"a": 0.02, "b": 0.5}) == {"a": 0.04, "b": 0.5}
    assert holm({"a": 0.4, "b": 0.5})["b"] == 0.8  # at least the corrected value of a smaller p
