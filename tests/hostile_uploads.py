"""Malicious, damaged and mislabelled files to upload."""

import gzip
import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

from image_files import noise

Upload = tuple[str, bytes]

KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "jpeg": ("JPEG", {"quality": 80}),
    "progressive": ("JPEG", {"progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {"compression": "tiff_lzw"}),
}


def hostile_uploads() -> Iterator[Upload]:
    """Yield (description, content) of each file."""
    yield from truncated()
    yield from damaged()
    yield from huge()
    yield from mislabelled()
    yield from polyglots()
    yield from strange_exif()
    yield from bombs()


def valid_image(kind: str) -> bytes:
    name, options = KINDS[kind]
    content = io.BytesIO()
    noise((64, 48), seed=3).save(content, format=name, **options)
    return content.getvalue()


def truncated() -> Iterator[Upload]:
    yield "empty", b""
    yield "one byte", b"\xff"
    for kind in KINDS:
        content = valid_image(kind)
        for stop in sorted(
            {2, 4, 8, 12, 16, 26, 40, *np.linspace(48, len(content) - 9, 9, dtype=int)}
        ):
            yield f"{kind} cut at {stop}", content[:stop]


def damaged() -> Iterator[Upload]:
    for kind in KINDS:
        content = np.frombuffer(valid_image(kind), dtype=np.uint8)
        for seed in range(6):
            rng = np.random.default_rng(seed)
            positions = rng.integers(8, len(content), 1 + 20 * seed)
            broken = content.copy()
            broken[positions] = rng.integers(0, 256, len(positions))
            yield f"{kind} damaged {seed}", broken.tobytes()


def huge() -> Iterator[Upload]:
    for width, height in ((2**31 - 1, 2**31 - 1), (100_000, 100_000), (1, 2**30), (0, 0), (0, 5)):
        yield f"png of {width} × {height}", png(width, height, zlib.compress(b"\0" * 64))
    yield "gif of 65535²", b"GIF89a" + struct.pack("<HH", 65535, 65535) + valid_image("gif")[10:]
    yield (
        "bmp of 2³¹",
        valid_image("bmp")[:18] + struct.pack("<ii", 2**31 - 1, -(2**31)) + valid_image("bmp")[26:],
    )
    jpeg = valid_image("jpeg")
    frame = jpeg.index(b"\xff\xc0")
    yield "jpeg of 65500²", jpeg[: frame + 5] + struct.pack(">HH", 65500, 65500) + jpeg[frame + 9 :]
    yield "webp of 16384²", riff(b"VP8X" + struct.pack("<I", 10) + b"\0" * 4 + b"\xff\x3f\0" * 2)
    for field, value in ((256, 2**32 - 1), (257, 2**32 - 1), (258, 2**16 - 1), (273, 2**32 - 1)):
        yield (
            f"tiff with {field} = {value}",
            tiff({256: 64, 257: 48, 258: 8, 262: 1, 273: 8, field: value}),
        )


def mislabelled() -> Iterator[Upload]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("../../../../etc/cron.d/evil", b"0" * 10_000_000)
    arrays = io.BytesIO()
    np.savez(arrays, features=np.zeros((3, 4)))
    yield from {
        "text": b"hello",
        "html": b"<html><script>alert(1)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
        "xml entities": b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>',
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n",
        "pdf": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj",
        "zip": archive.getvalue(),
        "gzip": gzip.compress(b"\0" * 10_000_000),
        "pickle": pickle.dumps({"a": 1}),
        "npz": arrays.getvalue(),
        "elf": b"\x7fELF" + b"\0" * 60,
        "sqlite": b"SQLite format 3\0" + b"\0" * 90,
        "fits": b"SIMPLE  =                    T" + b" " * 2850,
        "psd": b"8BPS\0\1" + b"\0" * 30,
        "ico": b"\0\0\1\0\xff\xff" + b"\xff" * 40,
        "font": b"\0\1\0\0" + b"\xff" * 40,
        "url": b"http://127.0.0.1:1/secret.png",
        "path": b"/etc/passwd",
        "zeros": b"\0" * 4096,
        "ones": b"\xff" * 4096,
        "jpeg2000": b"\0\0\0\x0cjP  \r\n\x87\n" + b"\xff" * 64,
        "xbm": b"#define im_width 9999999\n#define im_height 9999999\nstatic char im_bits[] = {",
        "ppm": b"P6 99999 99999 255\n",
    }.items()
    for kind in KINDS:
        yield f"{kind} magic alone", valid_image(kind)[:12] + b"\0" * 500


def polyglots() -> Iterator[Upload]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.txt", "a")
    script = b"<script>alert(document.cookie)</script>"
    yield "jpeg and zip", valid_image("jpeg") + archive.getvalue()
    yield "gif and javascript", b"GIF89a/*" + valid_image("gif")[8:] + b"*/=1;alert(1)"
    yield "png and html", valid_image("png") + script
    yield (
        "jpeg with html in a comment",
        valid_image("jpeg")[:2] + b"\xff\xfe\0\x2b" + script + valid_image("jpeg")[2:],
    )
    yield "bmp and php", valid_image("bmp") + b"<?php system($_GET['c']); ?>"
    yield "two jpegs", valid_image("jpeg") * 2
    yield "png inside of a bmp", valid_image("bmp")[:54] + valid_image("png")


def strange_exif() -> Iterator[Upload]:
    def jpeg(exif: bytes) -> bytes:
        segment = b"Exif\0\0" + exif
        return (
            valid_image("jpeg")[:2]
            + b"\xff\xe1"
            + struct.pack(">H", len(segment) + 2)
            + segment
            + valid_image("jpeg")[2:]
        )

    yield "exif that points to itself", jpeg(tiff({34665: 8}))
    yield (
        "exif of 65535 entries",
        jpeg(b"II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0\xff\xff\xff\x7f" * 4000),
    )
    yield "exif with orientation 99", jpeg(tiff({274: 99}))
    yield "exif with an offset beyond the file", jpeg(b"MM\0*\xff\xff\xff\xff")
    yield "exif of zeros", jpeg(b"\0" * 60_000)
    nested = b"II*\0\x08\0\0\0"
    for level in range(2000):
        nested += struct.pack("<HHHIII", 1, 34665, 4, 1, 8 + 18 * (level + 1), 0)
    yield "exif nested 2000 times", jpeg(nested)
    yield (
        "a segment longer than the file",
        valid_image("jpeg")[:2] + b"\xff\xe1\xff\xffExif\0\0" + b"\0" * 50,
    )


def bombs() -> Iterator[Upload]:
    yield "png with a gigabyte in 8 × 8", png(8, 8, deflated(1 << 30))
    yield "png of 7000² zeros", png(7000, 7000, deflated(7000 * 7001))
    for chunk, content in {
        b"zTXt": b"k\0\0" + deflated(1 << 28),
        b"iTXt": b"k\0\1\0\0\0" + deflated(1 << 28),
        b"iCCP": b"k\0\0" + deflated(1 << 28),
    }.items():
        yield f"png with {chunk.decode()} bomb", png(8, 8, deflated(72), (chunk, content))
    jpeg = valid_image("progressive")
    scan = jpeg.index(b"\xff\xda")
    yield "jpeg of 20,000 scans", jpeg[:scan] + jpeg[scan : scan + 12] * 20_000 + jpeg[scan:]
    frames = io.BytesIO()
    many = [Image.new("L", (300, 300), shade % 256) for shade in range(300)]
    many[0].save(frames, format="GIF", save_all=True, append_images=many[1:])
    yield "gif of 300 frames", frames.getvalue()
    pages = io.BytesIO()
    many[0].save(pages, format="TIFF", save_all=True, append_images=many[1:50])
    yield "tiff of 50 pages", pages.getvalue()


def png(width: int, height: int, pixels: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )


def riff(content: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + len(content)) + b"WEBP" + content


def tiff(fields: dict[int, int]) -> bytes:
    entries = b"".join(struct.pack("<HHII", name, 4, 1, fields[name]) for name in sorted(fields))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(fields)) + entries + b"\0" * 68


def deflated(n_zeros: int) -> bytes:
    """Compress zeros to a thousandth of their size: a compressed block, as often as needed."""
    n_blocks, rest = divmod(n_zeros, 1 << 20)
    packer = zlib.compressobj(9)
    header = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"\0" * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.compress(b"\0" * rest) + packer.flush()
    # The checksum, Adler-32, of zeros is 1 below and their number modulo 65521 above.
    return header + block * n_blocks + end[:-4] + struct.pack(">HH", n_zeros % 65521, 1)
