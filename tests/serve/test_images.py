import io
import subprocess
import sys

import pytest
from PIL import ExifTags, Image, TiffTags
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from image_files import install_fake_heif, noise, save_as_heic
from orbithash.serve.error_responses import UnprocessableError
from orbithash.serve.images import SCAN, decode_upload, image_media_type, make_thumbnail


def test_heic_files_of_the_index_are_shown_but_not_accepted_as_uploads(tmp_path, monkeypatch):
    install_fake_heif(tmp_path / "installed", monkeypatch)
    heic = save_as_heic(Image.new("RGB", (40, 30), "red"), tmp_path / "IMG_0001.HEIC")
    assert image_media_type(heic) == "image/heif"
    with Image.open(io.BytesIO(make_thumbnail(heic))) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (40, 30))
    with pytest.raises(UnprocessableError, match="known format; give a JPEG or PNG"):
        decode_upload(heic.read_bytes(), at_least=16, max_pixels=10_000)


def test_the_limit_of_an_upload_also_holds_for_jpegs_that_are_decoded_at_a_smaller_size():
    content = io.BytesIO()
    Image.new("RGB", (400, 300)).save(content, format="JPEG")
    with pytest.raises(UnprocessableError, match="400 × 300 pixels are more than 100,000; save a"):
        decode_upload(content.getvalue(), at_least=30, max_pixels=100_000)


def jpeg_in_tiff(*, n_scans):
    """Return a TIFF of one strip that holds a JPEG whose first scan is repeated."""
    content = io.BytesIO()
    noise((32, 32)).save(content, format="TIFF", compression="jpeg")
    with Image.open(content) as image:
        (start,), (length,) = image.tag_v2[273], image.tag_v2[279]
    tiff = content.getvalue()
    scan = tiff.rindex(SCAN)
    repeated = tiff[start:scan] + tiff[scan : start + length - 2] * n_scans + b"\xff\xd9"
    moved = tiff + repeated
    # The only entries of the directory with these values are the strip's offset and length.
    for old, new in ((length, len(repeated)), (start, len(tiff))):
        entry = (1).to_bytes(4, "little") + old.to_bytes(4, "little")
        assert moved.count(entry) == 1
        moved = moved.replace(entry, entry[:4] + new.to_bytes(4, "little"))
    return moved


def test_scans_are_also_counted_in_the_strips_of_a_tiff():
    content = io.BytesIO()
    noise((600, 600)).save(content, format="TIFF", compression="jpeg")
    assert content.getvalue().count(SCAN) > 10  # one in each strip
    decode_upload(content.getvalue(), at_least=16, max_pixels=10**6)
    with pytest.raises(UnprocessableError, match="more than 20 scans"):
        decode_upload(jpeg_in_tiff(n_scans=30), at_least=16, max_pixels=10**6)


@pytest.mark.parametrize(("kind", "value"), [(TiffTags.FLOAT, 1.5), (TiffTags.ASCII, "abc")])
def test_strips_of_a_tiff_may_be_described_by_anything(kind, value):
    directory = ImageFileDirectory_v2()
    for tag, number in {256: 8, 257: 8, 258: 8, 259: 7, 262: 1}.items():
        directory[tag] = number
    for tag in (273, 279):  # offsets and lengths
        directory.tagtype[tag], directory[tag] = kind, value
    content = io.BytesIO(b"II*\0\x08\0\0\0")
    content.seek(8)
    directory.save(content)
    with pytest.raises(UnprocessableError, match="the image cannot be read"):
        decode_upload(content.getvalue(), at_least=16, max_pixels=10**6)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "orientation"), [("RGBA", 1), ("LA", 6), ("P", 1), ("RGB", 8)])
def test_the_largest_image_takes_at_most_ten_bytes_a_pixel(tmp_path, mode, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new(mode, (7071, 7071)).save(tmp_path / "large.png", exif=exif)
    program = (
        "import pathlib, resource, sys; from orbithash.serve.images import decode_upload\n"
        "content = pathlib.Path(sys.argv[1]).read_bytes()\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "decode_upload(content, at_least=240, max_pixels=50_000_000)\n"
        "print(1024 * (peak() - before))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "large.png")]
    n_bytes = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert n_bytes < 10 * 7071**2
