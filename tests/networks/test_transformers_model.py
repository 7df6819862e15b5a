import json
import socket
import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from image_files import noise, save
from orbithash.data.transforms import read_view
from orbithash.encoders.runs.fingerprints import weights_digest
from orbithash.encoders.runs.model_file import read_encoder
from orbithash.errors import InputError, MissingExtraError
from orbithash.networks import BACKBONES, HashingNetwork, View, load_photo_backbone
from orbithash.networks.rebuilding import network_of
from orbithash.networks.transformers_model import MODEL_TYPES, normalisation, view_of_processor
from process_memory import peak_memory

transformers = pytest.importorskip("transformers")


def processor_class(name):
    """The class that needs no torchvision; before version 5 of the library it had no suffix."""
    return getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A tiny vision transformer with random weights, saved by the library."""
    folder = tmp_path_factory.mktemp("vit")
    vit_model().save_pretrained(folder)
    size = {"height": 32, "width": 32}
    processor = processor_class("ViTImageProcessor")(size=size, image_mean=(0.4, 0.5, 0.6))
    processor.save_pretrained(folder)
    return folder


def vit_model(**options):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    )
    return transformers.ViTModel(config, **options).eval()


def test_features_equal_those_of_the_library_with_its_image_processor(vit, tmp_path):
    backbone = load_photo_backbone(f"transformers:{vit}")
    path = save(noise((60, 40)), tmp_path / "a.png")
    pixels = torch.from_numpy(read_view(path, **asdict(backbone.view)).copy())
    processed = transformers.AutoImageProcessor.from_pretrained(vit)(
        Image.open(path), return_tensors="pt"
    )
    with torch.inference_mode():
        features = backbone(pixels.permute(2, 0, 1)[None].float())
        expected = transformers.AutoModel.from_pretrained(vit)(**processed).pooler_output
    assert backbone.n_features == 16
    # Pixels may differ by 1 in 255 through rounding.
    torch.testing.assert_close(features, expected, rtol=1e-2, atol=1e-3)


def test_the_model_can_be_rebuilt_from_its_arguments_and_weights(vit):
    backbone = load_photo_backbone(f"transformers:{vit}")
    again = BACKBONES["transformers"](**json.loads(json.dumps(backbone.arguments)))
    again.load_state_dict(backbone.state_dict())
    images = torch.rand(2, 3, 32, 32) * 255
    with torch.inference_mode():
        torch.testing.assert_close(again.eval()(images), backbone(images), rtol=0, atol=0)


def test_gradients_reach_the_model_through_a_hash_head(vit):
    network = HashingNetwork(load_photo_backbone(f"transformers:{vit}"), 8)
    network(torch.rand(3, 3, 32, 32) * 255).sum().backward()
    gradients = [weight.grad for weight in network.backbone.parameters()]
    assert sum(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients) > 10


def test_an_untrained_pooler_is_not_used(vit, tmp_path):
    # Classifiers are published without it.
    model = vit_model(add_pooling_layer=False)
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_bytes(
        (vit / "preprocessor_config.json").read_bytes()
    )
    backbone = load_photo_backbone(f"transformers:{tmp_path}")
    images = torch.rand(2, 3, 32, 32) * 255
    with torch.inference_mode():
        first = model(pixel_values=(images - backbone.mean) / backbone.std).last_hidden_state[:, 0]
        torch.testing.assert_close(backbone(images), first)
    # Two loadings of one model have equal weights.
    again = load_photo_backbone(f"transformers:{tmp_path}")
    assert weights_digest(again) == weights_digest(backbone)


def test_convolutional_models_give_their_pooled_channels(tmp_path):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    transformers.ResNetModel(config).eval().save_pretrained(tmp_path)
    processor_class("ConvNextImageProcessor")(size={"shortest_edge": 64}).save_pretrained(tmp_path)
    backbone = load_photo_backbone(f"transformers:{tmp_path}")
    assert backbone.n_features == 16
    assert backbone.view == View(73, 64, keep_shape=True, interpolation="bicubic")
    assert backbone(torch.rand(2, 3, 64, 64) * 255).shape == (2, 16)


def test_only_the_vision_part_of_models_for_images_and_text_is_used(tmp_path):
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.CLIPConfig(
        vision_config={**small, "image_size": 32, "patch_size": 8},
        text_config={**small, "vocab_size": 20},
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    size = {"height": 32, "width": 32}
    processor = processor_class("CLIPImageProcessor")(size={"shortest_edge": 32}, crop_size=size)
    processor.save_pretrained(tmp_path)
    backbone = load_photo_backbone(f"transformers:{tmp_path}")
    assert backbone.n_features == 16
    assert backbone.view.keep_shape
    assert not any("text" in name for name in backbone.state_dict())


@pytest.mark.parametrize(
    ("processor", "view"),
    [
        ("ViTImageProcessor", View(224, 224)),
        ("BitImageProcessor", View(224, 224, keep_shape=True, interpolation="bicubic")),
        ("CLIPImageProcessor", View(224, 224, keep_shape=True, interpolation="bicubic")),
        ("ConvNextImageProcessor", View(384, 384, interpolation="bicubic")),
        ("EfficientNetImageProcessor", View(346, 346, interpolation="bicubic")),
    ],
)
def test_views_equal_the_librarys_image_processors(processor, view):
    assert view_of_processor(processor_class(processor)().to_dict()) == view


def test_the_centre_crop_of_a_processor_is_kept():
    settings = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}
    processor = {"do_resize": True, "do_center_crop": True, "resample": 3, **settings}
    view = view_of_processor(processor)
    assert view == View(256, 224, keep_shape=True, interpolation="bicubic")


def test_normalisation_applies_to_values_up_to_255():
    processor = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    mean, std = normalisation(processor | {"image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    np.testing.assert_allclose((mean, std), ([127.5] * 3, [63.75] * 3))
    mean, std = normalisation(processor | {"do_normalize": False})
    np.testing.assert_allclose((mean, std), ([0] * 3, [255] * 3))


def test_a_processor_without_square_output_is_refused():
    processor = {"do_resize": True, "size": {"height": 200, "width": 100}, "resample": 2}
    with pytest.raises(InputError, match="does not make squares"):
        view_of_processor(processor)


def test_loading_errors_have_one_line(vit, tmp_path):
    with pytest.raises(InputError, match=r"cannot load .* with transformers") as caught:
        load_photo_backbone(f"transformers:{tmp_path}")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="write transformers:NAME"):
        load_photo_backbone("transformers")
    with pytest.raises(InputError, match="leave --weights out"):
        load_photo_backbone(f"transformers:{vit}", tmp_path)


def test_incomplete_weights_are_refused(vit, tmp_path):
    model = vit_model()
    weights = {name: w for name, w in model.state_dict().items() if "layernorm_after" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    (tmp_path / "preprocessor_config.json").write_bytes(
        (vit / "preprocessor_config.json").read_bytes()
    )
    with pytest.raises(InputError, match="lacks 2 of its weights"):
        load_photo_backbone(f"transformers:{tmp_path}")


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'orbithash\[transformers\]'"):
        load_photo_backbone("transformers:google/vit-base-patch16-224")


HOSTILE = {
    "a backbone of the hub": {
        "model_type": "upernet", "backbone": "a/b", "use_pretrained_backbone": True
    },
    "a model of timm": {"model_type": "timm_backbone", "backbone": "resnet18"},
    "20,000 layers": {
        "model_type": "vit", "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8,
        "num_hidden_layers": 20_000,
    },
    "wide layers": {"model_type": "vit", "hidden_size": 768 * 64, "intermediate_size": 10},
    "a large number": {"model_type": "vit", "image_size": 10**9},
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_loading_a_model_file_never_calls_a_hub_nor_creates_more_than_it_holds(
    case, tmp_path, no_network
):
    description = {
        "backbone": "transformers",
        "arguments": arguments_of(HOSTILE[case]),
        "n_bits": 16,
        "hidden": 0,
    }
    file = tmp_path / "model.safetensors"
    header = {"orbithash": json.dumps({"images": description})}
    save_file({"backbone.weight": np.zeros(1, np.float32)}, file, metadata=header)
    before = peak_memory()
    with pytest.raises(InputError, match="cannot read an encoder"):
        read_encoder(file)
    assert peak_memory() - before < 500_000_000
    assert not no_network


def test_a_kernel_that_a_description_names_is_never_loaded(vit, no_network):
    backbone = load_photo_backbone(f"transformers:{vit}")
    named = {"_attn_implementation": "a/b", "attn_implementation": "a/b", "auto_map": {"x": "a/b"}}
    arguments = backbone.arguments | {"config": backbone.config | named}
    again = network_of(lambda: BACKBONES["transformers"](**arguments), backbone.state_dict())
    assert weights_digest(again) == weights_digest(backbone)
    assert not no_network


def test_a_folder_whose_config_names_a_model_of_the_hub_is_refused(vit, tmp_path, no_network):
    (tmp_path / "config.json").write_text(json.dumps(HOSTILE["a backbone of the hub"]))
    with pytest.raises(InputError, match="type 'upernet' are not supported"):
        load_photo_backbone(f"transformers:{tmp_path}")
    assert not no_network


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(MODEL_TYPES))
def test_every_supported_type_is_made_of_its_own_layers(model_type, no_network):
    backbone = BACKBONES["transformers"]
    with torch.device("meta"):
        made = backbone(**arguments_of({"model_type": model_type}))
    assert made.n_features > 0
    assert not [key for key in made.config if "backbone" in key]
    assert not no_network


def arguments_of(config):
    return {"config": config, "view": {"resize": 224, "crop": 224}, "mean": [0] * 3, "std": [1] * 3}


@pytest.fixture
def no_network(monkeypatch):
    """The addresses that were called; none is reached."""
    called = []

    def refuse(*arguments, **options):
        called.append(arguments)
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return called
