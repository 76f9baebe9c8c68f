"""Switches of torchsparse's own kernels. They are kept, and change nothing here: plans are chosen by measured times."""

benchmark = False
allow_tf32 = True
allow_fp16 = True
hash_rsv_ratio = 2


def init() -> None:
    """Do nothing: there is no backend to be set up."""
