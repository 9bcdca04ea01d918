"""The operations that layers are written in: what each allocates, saves, and allocates going back.

Each function names the PyTorch operation it stands for. What an operation saves is in PyTorch's
``tools/autograd/derivatives.yaml``; what its backward pass allocates, in the formulas named there
(``torch/csrc/autograd/FunctionsManual.cpp``) and the kernels.
"""

from .attention import fused_attention
from .elementwise import (
    add,
    add_number,
    cube,
    dropout,
    from_output,
    gated,
    gelu,
    masked,
    multiply,
    multiply_weight,
    negate,
    one_more,
    reciprocal_root,
    scale,
    silu,
    softmax,
    square,
    tanh,
    turned,
)
from .embedding import embedding
from .gather import divide, divide_in_place, highest, rows, summed
from .losses import cross_entropy
from .matrices import affine, as_used, grouped, linear, matmul
from .norms import layer_norm, mean, rms_norm
from .parallel import (
    gathered,
    gathered_columns,
    part_of_embedding,
    reduced,
    scattered,
    shared_input,
)
from .parallel_loss import cross_entropy as cross_entropy_in_parallel
from .ring import ring_attention
from .views import (
    by_tokens,
    cast,
    chunk,
    expanded,
    expanded_copy,
    heads,
    heads_joined,
    joined,
    joined_with_batch,
    part,
    split,
    view,
)

__all__ = [
    "add",
    "add_number",
    "affine",
    "as_used",
    "by_tokens",
    "cast",
    "chunk",
    "cross_entropy",
    "cross_entropy_in_parallel",
    "cube",
    "divide",
    "divide_in_place",
    "dropout",
    "embedding",
    "expanded",
    "expanded_copy",
    "from_output",
    "fused_attention",
    "gated",
    "gathered",
    "gathered_columns",
    "gelu",
    "grouped",
    "heads",
    "heads_joined",
    "highest",
    "joined",
    "joined_with_batch",
    "layer_norm",
    "linear",
    "masked",
    "matmul",
    "mean",
    "multiply",
    "multiply_weight",
    "negate",
    "one_more",
    "part",
    "part_of_embedding",
    "reciprocal_root",
    "reduced",
    "ring_attention",
    "rms_norm",
    "rows",
    "scale",
    "scattered",
    "shared_input",
    "silu",
    "softmax",
    "split",
    "square",
    "summed",
    "tanh",
    "turned",
    "view",
]
