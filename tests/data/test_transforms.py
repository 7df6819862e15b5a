import errno
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from image_files import install_fake_heif, noise, save, save_as_heic
from orbithash.data import transforms
from orbithash.data.transforms import INTERPOLATIONS, decode_rgb, read_rgb, read_view
from orbithash.errors import InputError, UnreadableImageError

SIZE = (30, 20)
RED, GREY, BLUE = (200, 30, 40), (90, 90, 90), (10, 20, 230)


def colour_of(path) -> np.ndarray:
    """Return the mean colour of the network's input."""
    return read_view(path, resize=16, crop=12).mean(axis=(0, 1))


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tiff", "a.bmp"])
def test_lossless_formats_keep_their_colours(name, tmp_path):
    options = {"lossless": True} if name == "a.webp" else {}
    path = save(Image.new("RGB", SIZE, RED), tmp_path / name, **options)
    assert colour_of(path).tolist() == list(RED)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpegs_keep_their_colours(options, tmp_path):
    path = save(Image.new("RGB", SIZE, RED), tmp_path / "a.jpg", **options)
    np.testing.assert_allclose(colour_of(path), RED, atol=2)


@pytest.mark.parametrize("name", ["grey.jpg", "grey.png", "grey.tiff"])
def test_grey_images_become_equal_parts_of_red_green_and_blue(name, tmp_path):
    path = save(Image.new("L", SIZE, 90), tmp_path / name)
    assert colour_of(path).tolist() == list(GREY)


def test_black_and_white_becomes_0_and_255(tmp_path):
    assert colour_of(save(Image.new("1", SIZE, 1), tmp_path / "w.png")).tolist() == [255] * 3
    assert colour_of(save(Image.new("1", SIZE, 0), tmp_path / "b.tiff")).tolist() == [0] * 3


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff"])
@pytest.mark.parametrize("level", [90 * 256, 90 * 257])
def test_16_bit_grey_is_scaled_and_not_clipped(name, level, tmp_path):
    image = Image.fromarray(np.full((20, 30), level, dtype=np.uint16))
    assert colour_of(save(image, tmp_path / name)).tolist() == list(GREY)


def test_16_bit_colours_are_scaled(tmp_path):
    path = png_of_16_bits(tmp_path / "deep.png", SIZE, np.array(RED) * 257)
    assert colour_of(path).tolist() == list(RED)


@pytest.mark.parametrize(("name", "atol"), [("cmyk.tiff", 0), ("cmyk.jpg", 2)])
def test_cmyk_is_converted(name, atol, tmp_path):
    ink = (255 - RED[0], 255 - RED[1], 255 - RED[2], 0)  # cyan, magenta, yellow, no black
    path = save(Image.new("CMYK", SIZE, ink), tmp_path / name)
    np.testing.assert_allclose(colour_of(path), RED, atol=atol)


@pytest.mark.parametrize("name", ["palette.gif", "palette.png", "palette.tiff"])
def test_palettes_are_converted(name, tmp_path):
    image = Image.new("P", SIZE, 1)
    image.putpalette([0, 0, 0, *RED])
    assert colour_of(save(image, tmp_path / name)).tolist() == list(RED)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparent_pixels_become_white(mode, tmp_path):
    image = Image.new("RGBA", SIZE, (0, 0, 0, 0)).convert(mode)
    name = "clear.tiff" if mode == "PA" else "clear.png"
    assert colour_of(save(image, tmp_path / name)).tolist() == [255] * 3


def test_a_palettes_transparent_colour_becomes_white(tmp_path):
    image = Image.new("P", SIZE, 1)
    image.putpalette([0, 0, 0, *RED])
    for name in ("clear.gif", "clear.png"):
        assert colour_of(save(image, tmp_path / name, transparency=1)).tolist() == [255] * 3


def test_partly_transparent_pixels_are_blended_with_white(tmp_path):
    path = save(Image.new("RGBA", SIZE, (0, 100, 200, 51)), tmp_path / "half.webp", lossless=True)
    np.testing.assert_allclose(colour_of(path), (204, 224, 244), atol=1)


def test_floating_point_images_are_refused_because_their_range_is_unknown(tmp_path):
    path = save(Image.new("F", SIZE, 0.5), tmp_path / "float.tiff")
    with pytest.raises(UnreadableImageError, match="floating-point"):
        colour_of(path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_rotated_by_their_exif_orientation(orientation, tmp_path):
    upright = Image.new("RGB", (40, 40), "black")
    upright.paste((255, 255, 255), (0, 0, 40, 10))  # a white band at the top
    upright.paste(BLUE, (0, 0, 10, 10))  # with a blue corner at the left
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = as_stored(upright, orientation)
    path = save(stored, tmp_path / "rotated.jpg", exif=exif, quality=95, subsampling=0)
    seen = np.asarray(read_rgb(path, at_least=40)).astype(int)
    np.testing.assert_allclose(seen[2, 2], BLUE, atol=12)
    np.testing.assert_allclose(seen[2, 37], (255, 255, 255), atol=12)
    np.testing.assert_allclose(seen[37, 20], (0, 0, 0), atol=12)


def test_the_view_is_the_centre_of_the_image_warped_to_a_square(tmp_path):
    image = noise((64, 32))
    path = save(image, tmp_path / "wide.png")
    whole = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
    seen = read_view(path, resize=16, crop=12)
    np.testing.assert_allclose(seen, whole[2:14, 2:14], atol=1)


@pytest.mark.parametrize(("size", "resized"), [((64, 32), (32, 16)), ((33, 66), (16, 32))])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_with_keep_shape_the_view_is_the_central_square_of_the_scaled_image(
    size, resized, interpolation, tmp_path
):
    image = noise(size)
    path = save(image, tmp_path / "a.png")
    whole = np.asarray(image.resize(resized, INTERPOLATIONS[interpolation])).astype(int)
    left, top = (resized[0] - 12) // 2, (resized[1] - 12) // 2
    seen = read_view(path, resize=16, crop=12, keep_shape=True, interpolation=interpolation)
    np.testing.assert_allclose(seen, whole[top : top + 12, left : left + 12], atol=1)


def test_a_view_larger_than_the_resized_image_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot crop 20 pixels from an image resized to 16"):
        read_view(save(noise((9, 9)), tmp_path / "a.png"), resize=16, crop=20)


def test_large_jpegs_are_decoded_at_a_reduced_size_but_never_below_at_least(tmp_path):
    path = save(noise((1600, 1200)), tmp_path / "large.jpg")
    assert read_rgb(path, at_least=256).size == (400, 300)
    assert read_rgb(path, at_least=1000).size == (1600, 1200)


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff"])
def test_formats_other_than_jpeg_are_rotated_too(suffix, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.new("RGB", (40, 20), "black")
    stored.paste((255, 255, 255), (0, 0, 10, 20))  # the left edge becomes the top
    path = save(stored, tmp_path / f"rotated.{suffix}", exif=exif, quality=100)
    seen = np.asarray(read_rgb(path, at_least=40))
    assert seen.shape == (40, 20, 3)
    assert seen[2, 10].min() > 250
    assert seen[37, 10].max() < 5


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's warning
def test_images_with_damaged_exif_data_are_read(tmp_path):
    for number, exif in enumerate(
        (b"Exif\0\0XX*", b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + 40 * b"\xee")
    ):
        path = save(Image.new("RGB", SIZE, RED), tmp_path / f"{number}.jpg", exif=exif)
        np.testing.assert_allclose(colour_of(path), RED, atol=2)


def test_decompression_bombs_are_refused(tmp_path):
    for side, reason in (
        (9_000, "9000 × 9000 pixels are more than"),
        (100_000, "10,000,000,000 pixels are more"),
    ):
        path = png_of_16_bits(tmp_path / "bomb.png", (side, side), np.zeros(3), n_rows=1)
        assert path.stat().st_size < 10_000
        with pytest.raises(UnreadableImageError, match=reason):
            colour_of(path)


def test_images_of_extreme_aspect_ratio_are_read_without_a_large_intermediate_image(tmp_path):
    path = save(Image.new("RGB", (60_000, 2), RED), tmp_path / "line.png")
    seen = read_view(path, resize=256, crop=224, keep_shape=True)
    assert seen.shape == (224, 224, 3)
    assert seen.mean(axis=(0, 1)).tolist() == list(RED)


def test_an_unreadable_file_is_refused_with_the_reason_and_advice_that_fits(tmp_path, monkeypatch):
    text, empty, locked = (tmp_path / name for name in ("text.jpg", "empty.jpg", "locked.jpg"))
    text.write_text("not an image")
    empty.touch()
    cut = save(noise((200, 200)), tmp_path / "cut.jpg")
    cut.write_bytes(cut.read_bytes()[:5000])
    torn = tmp_path / "torn.jpg"
    torn.write_bytes(b"\xff\xd8\xff" + bytes(40))
    floats = save(Image.new("F", SIZE, 0.5), tmp_path / "float.tiff")
    deny_reading(save(noise(SIZE), locked), monkeypatch)
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)  # opening it would wait forever
    cases = {
        text: "not an image of a known format; give a JPEG or PNG",
        empty: "the file is empty; replace it with an intact copy",
        cut: "truncated .*; replace it with an intact copy",
        torn: "its content is damaged .*; replace it with an intact copy",
        floats: "unknown range; save it with 8 or 16 bits",
        tmp_path / "none.jpg": "No such file or directory; check the path",
        text / "none.jpg": "Not a directory; check the path",
        tmp_path / ("a" * 300): "name too long; check the path and the disk",
        locked: "Permission denied; check its permissions",
        tmp_path: "a folder; give an image file",
        pipe: "a pipe, socket or device; give an image file",
    }
    for path, message in cases.items():
        with pytest.raises(UnreadableImageError, match=message) as caught:
            read_view(path, resize=16, crop=12)
        assert str(path) not in caught.value.reason
        assert str(caught.value) == f"cannot read {path}: {message_of(caught.value)}"


def message_of(error):
    return f"{error.reason}; {error.advice}"


def deny_reading(file, monkeypatch):
    """Let opening this file fail as if it belonged to somebody else, even for root."""
    allowed = Path.open

    def opened(path, *arguments, **options):
        if path == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return allowed(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)


def test_a_jpeg_of_a_phone_with_many_pixels_is_read_at_a_smaller_size(tmp_path, monkeypatch):
    path = save(noise((1600, 1200)), tmp_path / "large.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)  # Pillow itself would refuse it
    limits = {"max_pixels": 400_000, "max_jpeg_pixels": 2_000_000}
    assert decode_rgb(path, at_least=256, **limits).size == (400, 300)
    with pytest.raises(UnreadableImageError, match="1600 × 1200 pixels are more than 400,000"):
        decode_rgb(path, at_least=900, **limits)  # needs its full size
    with pytest.raises(UnreadableImageError, match="1600 × 1200 pixels are more than 1,900,000"):
        decode_rgb(path, at_least=256, max_pixels=400_000, max_jpeg_pixels=1_900_000)
    progressive = save(noise((1600, 1200)), tmp_path / "progressive.jpg", progressive=True)
    with pytest.raises(UnreadableImageError, match="are more than 400,000; save a smaller copy"):
        decode_rgb(progressive, at_least=256, **limits)


def test_heic_is_read_where_pillow_heif_is_installed(tmp_path, monkeypatch):
    install_fake_heif(tmp_path / "installed", monkeypatch)
    heic = save_as_heic(Image.new("RGB", SIZE, RED), tmp_path / "IMG_0001.HEIC")
    colour_of(save(Image.new("RGB", SIZE, RED), tmp_path / "other.png"))
    assert "pillow_heif" not in sys.modules  # imported only for a HEIC
    assert colour_of(heic).tolist() == list(RED)
    misnamed = heic.rename(tmp_path / "IMG_0001.jpg")  # as some phones and messengers name it
    assert colour_of(misnamed).tolist() == list(RED)


def test_heic_without_pillow_heif_says_what_to_install(tmp_path, monkeypatch):
    heic = save_as_heic(Image.new("RGB", SIZE, RED), tmp_path / "IMG_0001.HEIC")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    Image.init()
    monkeypatch.setattr(Image, "OPEN", {k: v for k, v in Image.OPEN.items() if k != "HEIF"})
    with pytest.raises(
        UnreadableImageError, match=r"a HEIC image.*pip install 'orbithash\[heif\]'"
    ):
        colour_of(heic)


def test_a_real_heic_is_read(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "a.heic"
    pillow_heif.from_pillow(Image.new("RGB", (64, 64), RED)).save(path)
    np.testing.assert_allclose(colour_of(path), RED, atol=4)


def as_stored(upright: Image.Image, orientation: int) -> Image.Image:
    """Return the image as a camera with this EXIF orientation stores it."""
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


def png_of_16_bits(
    path: Path, size: tuple[int, int], colour: np.ndarray, *, n_rows: int | None = None
) -> Path:
    """Write a single-colour PNG with 16 bits per channel; Pillow can only read such files."""
    width, height = size
    row = b"\0" + np.tile(colour.astype(">u2"), width).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    pixels = zlib.compress(row * (height if n_rows is None else n_rows))
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + name + data
        content += struct.pack(">I", zlib.crc32(name + data))
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_an_image_converted_in_bands_is_the_same(mode, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (61, 47, 4), dtype=np.uint8)
    image = (
        Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
        if mode == "I;16"
        else Image.fromarray(pixels).convert(mode)
    )
    whole = transforms.to_rgb(image)
    monkeypatch.setattr(transforms, "BAND_PIXELS", 500)
    assert transforms.to_rgb(image).tobytes() == whole.tobytes()
