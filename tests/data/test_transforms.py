import numpy as np
import pytest
from PIL import Image

from image_files import noise, save
from orbithash.data.transforms import read_rgb, read_view
from orbithash.errors import UnreadableImageError

SIZE = (30, 20)
RED, GREY, BLUE = (200, 30, 40), (90, 90, 90), (10, 20, 230)


def colour_of(path) -> np.ndarray:
    """The mean colour of the image as the network sees it."""
    return read_view(path, resize=16, crop=12).mean(axis=(0, 1))


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tiff", "a.bmp"])
def test_common_formats_keep_their_colours(name, tmp_path):
    path = save(Image.new("RGB", SIZE, RED), tmp_path / name)
    np.testing.assert_allclose(colour_of(path), RED, atol=4)


def test_grey_images_become_equal_parts_of_red_green_and_blue(tmp_path):
    path = save(Image.new("L", SIZE, 90), tmp_path / "grey.jpg")
    np.testing.assert_allclose(colour_of(path), GREY, atol=2)


def test_grey_of_16_bits_is_scaled_and_not_cut_off(tmp_path):
    image = Image.fromarray(np.full((20, 30), 90 * 256, dtype=np.uint16))
    np.testing.assert_allclose(colour_of(save(image, tmp_path / "deep.png")), GREY)


def test_printing_colours_are_converted(tmp_path):
    path = save(Image.new("RGB", SIZE, BLUE).convert("CMYK"), tmp_path / "cmyk.jpg")
    np.testing.assert_allclose(colour_of(path), BLUE, atol=6)


def test_palettes_are_looked_up(tmp_path):
    path = save(Image.new("RGB", SIZE, RED).convert("P", palette=1), tmp_path / "palette.gif")
    np.testing.assert_allclose(colour_of(path), RED, atol=20)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_is_white(mode, tmp_path):
    image = Image.new("RGBA", SIZE, (0, 0, 0, 0)).convert(mode)
    name = "clear.tiff" if mode == "PA" else "clear.png"
    np.testing.assert_allclose(colour_of(save(image, tmp_path / name)), (255, 255, 255))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_data_say(orientation, tmp_path):
    upright = Image.new("RGB", (40, 40), "black")
    upright.paste((255, 255, 255), (0, 0, 40, 10))  # a white sky
    upright.paste(BLUE, (0, 0, 10, 10))  # with a blue corner on the left
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = turned(upright, orientation)
    path = save(stored, tmp_path / "turned.jpg", exif=exif, quality=95, subsampling=0)
    seen = np.asarray(read_rgb(path, at_least=40)).astype(int)
    np.testing.assert_allclose(seen[2, 2], BLUE, atol=12)
    np.testing.assert_allclose(seen[2, 37], (255, 255, 255), atol=12)
    np.testing.assert_allclose(seen[37, 20], (0, 0, 0), atol=12)


def test_the_view_is_the_middle_of_the_image_warped_to_a_square(tmp_path):
    image = noise((64, 32))
    path = save(image, tmp_path / "wide.png")
    whole = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(read_view(path, resize=16, crop=12), whole[2:14, 2:14])


def test_large_jpegs_are_decoded_small_but_never_below_the_size_asked_for(tmp_path):
    path = save(noise((1600, 1200)), tmp_path / "large.jpg")
    assert read_rgb(path, at_least=256).size == (400, 300)
    assert read_rgb(path, at_least=1000).size == (1600, 1200)


def test_files_that_are_no_images_are_refused_with_the_reason(tmp_path):
    text, empty = tmp_path / "text.jpg", tmp_path / "empty.jpg"
    text.write_text("not an image")
    empty.touch()
    cut = save(noise((200, 200)), tmp_path / "cut.jpg")
    cut.write_bytes(cut.read_bytes()[:5000])
    cases = {
        text: "not an image of a known format",
        empty: "not an image of a known format",
        cut: "truncated",
        tmp_path / "none.jpg": "No such file",
        tmp_path: "Is a directory",
    }
    for path, reason in cases.items():
        with pytest.raises(UnreadableImageError, match=reason) as caught:
            read_view(path, resize=16, crop=12)
        assert str(path) not in caught.value.reason


def turned(upright: Image.Image, orientation: int) -> Image.Image:
    """The image as a camera stores it with this EXIF orientation."""
    turn = Image.Transpose
    undo = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_90,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_270,
    }
    return upright.transpose(undo[orientation]) if orientation in undo else upright
