"""What an accounting leaves out, said with every answer and sized where it can be."""

from __future__ import annotations

from collections.abc import Iterator

from .categories import Category
from .implementations import BY_STAGES, Implementation
from .layout import Routing
from .recorded_step import host_bytes, paged_bytes
from .run import Run
from .sharding import Host, Way
from .units import show_bytes


def omitted(run: Run) -> tuple[str, ...]:
    """The sentences that hold for this run, the largest matters first."""
    if run.implementation is Implementation.PAPER:
        found = _paper(run)
    elif run.implementation is Implementation.NANOTRON:
        found = _nanotron(run)
    else:
        found = _megatron(run) if run.implementation in BY_STAGES else _recorded(run)
    return (*_alone(run), *found)


def _alone(run: Run) -> Iterator[str]:
    if run.layout.zero and run.layout.replicas == 1:
        yield (
            f"What ZeRO-{run.layout.zero} spares: one replica has no other to share with; say how "
            "many there are."
        )


def _recorded(run: Run) -> Iterator[str]:
    yield _BESIDE
    yield "What kernels take for themselves, such as cuBLAS workspaces and attention's backward."
    if host := host_bytes(run):
        what = "The optimizer's states"
        if run.sharding.sharding in (Way.FSDP1, Way.FSDP2):
            what = "Shards of the weights, their gradients and the optimizer's states"
        elif Host.NVME in (run.sharding.offload_optimizer, run.sharding.offload_param):
            what = (
                "What is not on disks, and the buffers through which the rest is read and written"
            )
        elif run.sharding.offload_optimizer is Host.NONE:
            what = "Shares of the weights"
        yield (f"{what}, in the CPU's memory: {show_bytes(host)} there for each GPU.")
    if run.layout.data > 1 and run.sharding.sharding is Way.FSDP1:
        yield _STREAMS
    if paged := paged_bytes(run):
        yield (
            f"The optimizer's paged states ({show_bytes(paged)}): the driver moves them between "
            "the CPU's and the GPU's memory, and they are in the GPU's only while there is room."
        )
    if run.layout.gpus > 1:
        yield _NCCL
    yield "Anything beside the model's step: a second model, evaluation, data kept on the GPU."
    if run.model.experts:
        yield "Uneven routing: every expert is taken to get the same number of tokens."


_BESIDE = (
    "The CUDA context, and what the allocator reserves beyond what is allocated: the sizes "
    "here are torch.cuda.memory_allocated's. What must be free has bounds of its own."
)
_STREAMS = (
    "What FSDP1's streams keep for longer: it tells the allocator of tensors that another stream "
    "reads (record_stream), and such memory is given out again only once that has been seen to "
    "have passed them. limit_all_gathers bounds it to the weights of two layers."
)
_NCCL = (
    "NCCL's buffers, which it takes from the GPU itself, some hundred MB a communicator and "
    "several GB where GPUs send all to all: in the bounds of what must be free."
)


def _nanotron(run: Run) -> Iterator[str]:
    yield _BESIDE
    if run.layout.gpus > 1:
        yield _NCCL
    yield "Kernels' own memory: cuBLAS's workspaces (32 MiB or more each) and attention's backward."
    yield "What nanotron's logs, checkpoints and data loader put on the GPU for a moment."


def _megatron(run: Run) -> Iterator[str]:
    yield _BESIDE
    if run.layout.gpus > 1:
        yield _NCCL
    yield "Kernels' own memory: cuBLAS's workspaces (32 MiB or more each) and attention's backward."
    mask = run.sequence * run.sequence * run.micro_batch // run.layout.context
    yield (
        f"An attention mask ({show_bytes(mask)}), which Megatron's loader makes unless it is told "
        "--no-create-attention-mask-in-dataloader."
    )
    if run.model.experts:
        if run.layout.routing is Routing.BALANCED:
            yield (
                "Uneven routing: every expert is taken to get as many tokens as the next; with "
                "--routing worst this GPU's get all that can come."
            )
        yield (
            "Other ways to run experts than all-to-all with grouped products, the router in fp32 "
            "with a balancing loss."
        )
    yield "Buffers of communication that is overlapped with products (--tp-comm-overlap)."


def _paper(run: Run) -> Iterator[str]:
    model, layout = run.model, run.layout
    differences = _differences(run)
    if differences:
        yield (
            "The textbook's layer is GPT's: 16-bit, with dropout, a feed-forward layer four times "
            f"as wide as the model and every score kept. {model.name} has {differences}; its "
            "parameters are counted exactly, its activations as GPT's."
        )
    if run.recipe.by_category[Category.WEIGHTS] == 4:
        yield (
            "The textbook counts activations in 16-bit under every recipe; in FP32 without "
            "autocast they take about twice as much."
        )
    tokens = run.sequence * run.micro_batch
    ends = tokens * model.hidden * (1 + 2 + 2)
    yield (
        "The embedding's dropout mask and the inputs of the final norm and of the head "
        f"(s·b·h·(1 + 2 + 2) = {show_bytes(ends)})."
    )
    if layout.replicas > 1 and layout.zero == 3:
        yield "The layers that ZeRO-3 gathers for a moment to compute with them."
    if layout.gpus > 1:
        yield "Buffers in which GPUs send and receive: gradient buckets, gathered inputs, NCCL's."
    yield "Temporary copies of the optimizer and of kernels, such as cuBLAS workspaces."
    yield (
        "The CUDA context and what the allocator reserves beyond what is allocated: leave some "
        "gigabytes free."
    )


def _differences(run: Run) -> str:
    """How the model departs from the layer that the textbook counts, in words."""
    model = run.model
    found = []
    if model.experts:
        found.append(f"{model.experts} experts a layer")
    if model.gated:
        found.append("a gated feed-forward layer")
    elif model.ffn != 4 * model.hidden:
        found.append(f"a feed-forward layer of {model.ffn:,}")
    if model.latent:
        found.append("latent attention")
    elif model.kv_heads != model.heads:
        found.append(f"{model.kv_heads} key-value heads for {model.heads} query heads")
    if model.head_dim * model.heads != model.hidden and not model.latent:
        found.append(f"heads of {model.head_dim}")
    if len(found) > 1:
        return ", ".join(found[:-1]) + " and " + found[-1]
    return "".join(found)
