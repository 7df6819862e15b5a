"""Where a head starts: at the weights of one that was trained on features."""

from orbithash.encoders import FeatureEncoder
from orbithash.errors import InputError
from orbithash.networks import FeatureHead


def start_from(head: FeatureHead, init: FeatureEncoder) -> None:
    """Take over another head's weights, which must be of the same shape."""
    theirs = init.model
    if not isinstance(theirs, FeatureHead):
        raise InputError("the run to start from holds a hasher; give one that was trained")
    for name in ("n_features", "n_bits", "hidden"):
        if getattr(theirs, name) != getattr(head, name):
            raise InputError(
                f"the run to start from has {name}={getattr(theirs, name)}, but here it is "
                f"{getattr(head, name)}; train with the same features, --bits and --hidden"
            )
    head.load_state_dict(theirs.state_dict())
