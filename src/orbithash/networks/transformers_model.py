"""Image models of the `transformers` library as backbones, by name or local folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orbithash.errors import InputError, MissingExtraError
from orbithash.networks.backbones import PhotoBackbone, View

# Image encoders that consist of their own layers. Types outside of this list may contain a model
# that they name, and load it from a hub as soon as they are created.
# fmt: off
MODEL_TYPES = frozenset(
    {
        "aimv2_vision_model", "beit", "bit", "chinese_clip_vision_model", "clip_vision_model",
        "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2",
        "dinov2_with_registers", "dinov3_convnext", "dinov3_vit", "efficientnet", "focalnet",
        "hiera", "ijepa", "internvl_vision", "levit", "mlcd", "mlcd_vision_model",
        "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "pixio", "poolformer",
        "pvt", "pvt_v2", "regnet", "resnet", "segformer", "siglip_vision_model", "swiftformer",
        "swin", "swinv2", "tipsv2_vision_model", "vit", "vit_mae", "vit_msn",
    }
)
# fmt: on
LARGEST_NUMBER = 1_000_000  # in a config
INTERPOLATIONS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class TransformersModel(PhotoBackbone):
    """An image model of `transformers`, written transformers:NAME or transformers:FOLDER.

    View and normalisation come from the model's image processor. The features are the model's
    pooled output, or the mean over all positions if it has none.
    """

    weights_source = "which the model includes"
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: Mapping[str, Any],
        view: Mapping[str, Any],
        mean: Sequence[float],
        std: Sequence[float],
        first_token: bool = False,
    ) -> None:
        """Create a model with random weights; use `load_transformers_model` for trained ones.

        Args:
            mean, std: Of red, green and blue, for values 0 … 255.
            first_token: Whether to use the first token of the last layer as features.
        """
        super().__init__()
        library = transformers_library()
        self.config, self.view, self.first_token = dict(config), View(**view), first_token
        self.register_buffer("mean", torch.tensor(mean).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(3, 1, 1), persistent=False)
        with torch.device("meta"):
            self.model = library.AutoModel.from_config(plain_config(config))
            self.n_features = self._count_features()
        if self.mean.device.type != "meta":
            self.model = library.AutoModel.from_config(plain_config(config))

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "view": asdict(self.view),
            "mean": self.mean.flatten().tolist(),
            "std": self.std.flatten().tolist(),
            "first_token": self.first_token,
        }

    def forward(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n features"]:
        return self._features(self.model(pixel_values=(images - self.mean) / self.std))

    def _features(self, output: Any) -> Float[Tensor, "n features"]:
        hidden: Tensor = output.last_hidden_state
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if self.first_token:
            return hidden[:, 0]
        if pooled is not None:
            return pooled.flatten(1)
        # A feature map (n, channels, rows, columns), or a sequence (n, tokens, channels).
        return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden.mean(dim=1)

    @torch.inference_mode()
    def _count_features(self) -> int:
        """Return the number of features; without memory, the view may be of any size."""
        was_training = self.training
        output = self.eval().model(pixel_values=torch.zeros(1, 3, self.view.crop, self.view.crop))
        self.train(was_training)
        return int(self._features(output).shape[1])


def load_transformers_model(name: str) -> TransformersModel:
    """Load a model with its trained weights; transformers downloads named models once."""
    library = transformers_library()
    # A folder is loaded without the network, and no code that comes with a model is run.
    safely = {"local_files_only": Path(name).is_dir(), "trust_remote_code": False}
    try:
        # As plain values: some configs load others from a hub when they are created.
        values, _ = library.PretrainedConfig.get_config_dict(name, **safely)
        # Use only the vision part of models for images and text.
        config = plain_config(
            {"model_type": f"{values.get('model_type')}_vision_model"} | values["vision_config"]
            if "vision_config" in values
            else values
        )
        processor = library.AutoImageProcessor.from_pretrained(name, **safely).to_dict()
        model, loading = library.AutoModel.from_pretrained(
            name, config=config, output_loading_info=True, **safely
        )
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"cannot load {name!r} with transformers ({reason}); give the name of an image model, "
            "or a folder with its config.json, preprocessor_config.json and weights"
        ) from None
    missing = sorted(loading["missing_keys"])
    if untrained := [key for key in missing if not key.startswith("pooler.")]:
        raise InputError(
            f"{name} lacks {len(untrained)} of its weights, for example {untrained[0]!r}; "
            "give an image model with complete weights"
        )
    mean, std = normalisation(processor)
    backbone = TransformersModel(
        json.loads(config.to_json_string(use_diff=False)),
        asdict(view_of_processor(processor)),
        mean,
        std,
        # Classifiers are published without the pooler, which would be random here: use its input,
        # the first token.
        first_token=bool(missing),
    )
    weights = model.state_dict()
    # Missing weights are not used. Zeros make every loading give the same state dict.
    unused = {name: torch.zeros_like(weights[name]) for name in missing}
    backbone.model.load_state_dict(weights | unused)
    return backbone.eval()


def plain_config(values: Mapping[str, Any]) -> Any:
    """Return the config of a model with these values; values that its type lacks are left out.

    So no value can make the library load another model, or code, from a hub.
    """
    library = transformers_library()
    model_type = values.get("model_type")
    if model_type not in MODEL_TYPES:
        raise InputError(
            f"models of type {model_type!r} are not supported; give an image encoder of one of the "
            f"types {', '.join(sorted(MODEL_TYPES))}"
        )
    known = library.AutoConfig.for_model(model_type).to_dict().keys() - {"model_type"}
    kept = {key: values[key] for key in values if key in known and not key.startswith("_")}
    for key, value in kept.items():
        if largest(value) > LARGEST_NUMBER:
            raise InputError(
                f"{key} of the model is {value}; its numbers must not exceed {LARGEST_NUMBER:,}"
            )
    return library.AutoConfig.for_model(model_type, **kept)


def largest(value: Any) -> float:
    """Return the largest absolute number in a value of a config; 0 if there is none."""
    if isinstance(value, list | tuple):
        return max(map(largest, value), default=0)
    return abs(value) if isinstance(value, int | float) else 0


def view_of_processor(processor: Mapping[str, Any]) -> View:
    """Translate the settings of an image processor to a view; raise if that is impossible."""
    size, crop_size = processor.get("size") or {}, processor.get("crop_size") or {}
    interpolation = INTERPOLATIONS.get(int(processor.get("resample", 2)))
    if processor.get("crop_pct") and size.get("shortest_edge"):
        # ConvNeXt's rule: from 384 pixels on, warp; below, crop from a larger image.
        crop = int(size["shortest_edge"])
        keep_shape = crop < 384
        resize = int(crop / processor["crop_pct"]) if keep_shape else crop
    else:
        keep_shape = "shortest_edge" in size
        resize = int(size["shortest_edge"] if keep_shape else size.get("height", 0))
        cropped = processor.get("do_center_crop") and crop_size
        crop = int(crop_size["height"]) if cropped else resize
    square = size.get("height") == size.get("width")
    square = square and crop_size.get("height") == crop_size.get("width")
    if not processor.get("do_resize") or not square or interpolation is None or crop < 1:
        raise InputError(
            f"the model's image processor ({processor.get('image_processor_type')}) does not make "
            "squares of one size; choose a model for classification or embedding of whole images"
        )
    return View(max(resize, crop), crop, keep_shape, interpolation)


def normalisation(processor: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of red, green and blue for values 0 … 255."""
    white = 1 / float(processor["rescale_factor"]) if processor.get("do_rescale") else 1.0
    if not processor.get("do_normalize"):
        return [0.0] * 3, [white] * 3
    mean, std = processor["image_mean"], processor["image_std"]
    return [white * float(value) for value in mean], [white * float(value) for value in std]


def transformers_library() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers") from None
    return transformers
