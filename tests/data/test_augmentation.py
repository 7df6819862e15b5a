import numpy as np
import pytest
from PIL import Image

from image_files import noise, save
from orbithash.data.augmentation import crop_box, read_training_view, warped
from orbithash.data.transforms import read_rgb
from orbithash.errors import UnreadableImageError


def gradient(size: tuple[int, int]) -> Image.Image:
    """A gradient: red encodes the x position, green the y position."""
    width, height = size
    red, green = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([red, green, 0 * red], axis=2).astype(np.uint8))


def views(path, n: int = 200, **options) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([read_training_view(path, crop=16, rng=rng, **options) for _ in range(n)])


def test_views_depend_only_on_the_generator(tmp_path):
    path = save(noise((60, 40)), tmp_path / "a.jpg")
    first, second = views(path, 5), views(path, 5)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (5, 16, 16, 3)
    assert first.dtype == np.uint8
    assert not (first[0] == first[1]).all()


def test_half_of_the_views_are_mirrored(tmp_path):
    seen = views(save(gradient((300, 200)), tmp_path / "a.png")).astype(int)
    mirrored = seen[:, 8, 0, 0] > seen[:, 8, -1, 0]
    assert 0.4 < mirrored.mean() < 0.6
    assert (seen[:, 0, 8, 1] < seen[:, -1, 8, 1]).all()  # never upside down


def test_views_cover_the_whole_image_and_each_at_least_a_third(tmp_path):
    seen = views(save(gradient((300, 200)), tmp_path / "a.png")).astype(int)
    assert seen[..., 0].min() < 10
    assert seen[..., 0].max() > 245
    width = np.abs(seen[:, 8, -1, 0] - seen[:, 8, 0, 0]) / 255
    height = (seen[:, -1, 8, 1] - seen[:, 0, 8, 1]) / 255
    # The centres of the outermost of 16 pixels are only 15/16 of the crop apart.
    area = width * height * (16 / 15) ** 2
    assert 0.32 < area.min() < 0.45
    assert area.max() > 0.9


@pytest.mark.parametrize(("keep_shape", "width_to_height"), [(False, 3.0), (True, 1.0)])
def test_crops_are_warped_as_much_as_the_encoded_view(keep_shape, width_to_height):
    rng = np.random.default_rng(0)
    shapes = []
    for _ in range(500):
        left, top = rng.random(2)
        ratio = (4 / 3) ** rng.uniform(-1, 1)
        x0, y0, x1, y1 = crop_box(
            (600, 200), area=0.25, ratio=ratio, left=left, top=top, keep_shape=keep_shape
        )
        assert 0 <= x0 < x1 <= 600
        assert 0 <= y0 < y1 <= 200
        shapes.append((x1 - x0) / (y1 - y0))
    assert np.exp(np.mean(np.log(shapes))) == pytest.approx(width_to_height, rel=0.15)


def test_no_crop_is_decoded_with_fewer_pixels_than_it_is_resized_to(tmp_path, monkeypatch):
    path = save(noise((1600, 1200)), tmp_path / "large.jpg")
    boxes = []

    def recorded(size, **options):
        box = crop_box(size, **options)
        boxes.append((size, min(box[2] - box[0], box[3] - box[1])))
        return box

    monkeypatch.setattr("orbithash.data.augmentation.crop_box", recorded)
    rng = np.random.default_rng(0)
    for _ in range(40):
        read_training_view(path, crop=64, rng=rng)
    assert min(side for _, side in boxes) >= 64
    assert all(size == (200, 150) for size, _ in boxes)  # decoded at an eighth


def test_pixels_come_from_the_same_decoder_as_the_encoded_view(tmp_path):
    # An image with an EXIF orientation: crops come from the rotated image.
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = gradient((40, 40)).transpose(Image.Transpose.ROTATE_90)
    path = save(stored, tmp_path / "rotated.jpg", exif=exif, quality=95, subsampling=0)
    upright = np.asarray(read_rgb(path, at_least=40)).astype(int)
    assert upright[35, 20, 1] > upright[5, 20, 1]
    seen = views(path, 20).astype(int)
    assert (seen[:, 0, 8, 1] < seen[:, -1, 8, 1]).all()


def test_an_unreadable_file_draws_the_same_number_of_random_values(tmp_path):
    (tmp_path / "broken.jpg").write_text("no image")
    good = save(noise((20, 20)), tmp_path / "good.png")
    after_broken, after_good = np.random.default_rng(3), np.random.default_rng(3)
    with pytest.raises(UnreadableImageError):
        read_training_view(tmp_path / "broken.jpg", crop=8, rng=after_broken)
    read_training_view(good, crop=8, rng=after_good)
    assert after_broken.random() == after_good.random()


def test_a_warped_drawing_depends_on_the_generator_and_stays_about_where_it_was():
    drawings = np.zeros((50, 16, 16), np.float32)
    drawings[:, 3:13, 7:9] = 1  # an upright stroke
    first, again = (warped(drawings, np.random.default_rng(0)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.dtype == np.float32
    assert 0 <= first.min() < first.max() <= 1
    assert len(np.unique(first.reshape(50, -1), axis=0)) == 50
    rows, columns = np.indices((16, 16))
    for drawing in first:
        assert 14 < drawing.sum() < 27  # 20 pixels, scaled by at most a tenth on each axis
        assert abs((rows * drawing).sum() / drawing.sum() - 7.5) < 2
        assert abs((columns * drawing).sum() / drawing.sum() - 7.5) < 2


def test_pixels_move_as_far_as_the_drawn_shift_says(monkeypatch):
    for name in ("ROTATION", "LOG_SCALE", "SHEAR"):
        monkeypatch.setattr(f"orbithash.data.augmentation.{name}", 0.0)
    monkeypatch.setattr("orbithash.data.augmentation.SHIFT", 0.25)
    image = np.zeros((1, 8, 8), np.float32)
    image[0, 4, 4] = 1
    (result,) = warped(image, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    rng.uniform(size=4)  # angle, two scales, shear
    down, right = -rng.uniform(-0.25, 0.25, 2) * 8
    rows, columns = np.indices((8, 8))
    assert result.sum() == pytest.approx(1)
    assert (rows * result).sum() == pytest.approx(4 + down, abs=1e-5)
    assert (columns * result).sum() == pytest.approx(4 + right, abs=1e-5)
