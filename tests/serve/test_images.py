import io

import pytest
from PIL import Image

from image_files import install_fake_heif, save_as_heic
from orbithash.serve.error_responses import UnprocessableError
from orbithash.serve.images import decode_upload, image_media_type, make_thumbnail


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
