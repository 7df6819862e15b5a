import pytest

from orbithash.errors import InputError
from orbithash.training.settings import read_settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method = 3", "method to 3; it must be text"),
        ("epochs = 3", "settings for no method"),
        ("method =", "has no settings to train with"),
        ('method = "triplet"\nsettings = 3', "settings to 3; it must be a table"),
        ('method = "triplet"\nmargin_of_bits = "1"', "margin_of_bits to '1'; it must be a number"),
        (
            'method = "triplet"\n[settings]\nepochs = "5"',
            "epochs to '5'; it must be a whole number",
        ),
        ('method = "triplet"\n[settings]\nepochs = 5.5', "epochs to 5.5; it must be a whole"),
        ('method = "triplet"\n[settings]\nclip = true', "clip to True; it must be a number"),
        ('method = "triplet"\n[settings]\nschedule = 1', "it must be cosine or steps"),
        ('method = "triplet"\n[settings]\nepocs = 5', "sets 'epocs'; there are"),
    ],
)
def test_a_file_with_anything_of_the_wrong_kind_is_refused(tmp_path, text, message):
    (tmp_path / "best.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_settings(tmp_path / "best.toml")


def test_whole_numbers_do_for_rates_and_further_notes_are_passed_over(tmp_path):
    text = 'method = "triplet"\nfound = "in March"\n[settings]\nlearning_rate = 1\nepochs = 5\n'
    (tmp_path / "best.toml").write_text(text)
    chosen = read_settings(tmp_path / "best.toml")
    assert chosen.settings == {"learning_rate": 1, "epochs": 5}
