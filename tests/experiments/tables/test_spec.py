import pytest

from orbithash.errors import InputError
from orbithash.experiments.tables.plan import row_stages
from orbithash.experiments.tables.spec import (
    FEATURES,
    TABLES,
    read_published,
    read_rows,
    read_table,
    read_tuning_records,
)
from orbithash.hashers import HASHERS
from orbithash.losses import LOSSES


@pytest.mark.parametrize("name", TABLES)
def test_a_table_compares_its_reference_with_rows_that_can_be_trained(name):
    table = read_table(name)
    names = [row.name for row in table.rows]
    assert table.reference in names
    assert len(set(names)) == len(names)
    for row in table.rows:
        for n_bits in table.bits:
            assert row_stages(row.spec, n_bits, epochs=None)


def test_every_method_has_a_row():
    assert {row.method for row in read_rows().values()} == {*LOSSES, *HASHERS, FEATURES}


def test_an_unknown_table_is_refused():
    with pytest.raises(InputError, match="there is no table 'mane'; choose from main, ablation"):
        read_table("mane")


@pytest.mark.parametrize("name", ["main", "ablation", "selection"])
def test_a_table_of_the_paper_has_exactly_its_rows(name):
    declared = {row.spec.published for row in read_table(name).rows if row.in_paper}
    for methods in read_published()[name].values():
        assert declared == methods.keys()


def test_a_method_has_the_same_published_map_in_every_table():
    published = read_published()
    seen = {}
    for table in ("main", "ablation", "selection"):
        for dataset, methods in published[table].items():
            assert dataset in published["datasets"]
            for method, maps in methods.items():
                assert len(maps) == len(published["bits"])
                assert seen.setdefault((dataset, method), maps) == maps


def test_tuning_is_recorded_for_rows_that_exist():
    assert read_tuning_records().rows.keys() <= read_rows().keys()
    assert read_tuning_records().about


def test_the_gamma_table_has_one_power_per_row():
    table = read_table("gamma")
    assert len(table.powers) == len(table.rows)
