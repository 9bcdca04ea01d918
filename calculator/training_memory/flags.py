"""The command line's flags: what each is called and means, and the run they ask for.

Every field of a run, and of a model's shape, is a flag of its own name, so a field that is added
to the calculator is a flag as well. Values are taken as they are written and checked by
:class:`~.run.Run`, which names all that cannot be, at once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from . import layout, recipe, sharding, tuning
from .blocks.ledger import Recompute
from .catalog import models
from .errors import InputError, nearest
from .implementations import FAMILIES, Implementation
from .model import SHAPE_FIELDS, Model
from .pipeline import Schedule
from .render.table import wrapped
from .run import DEFAULTS
from .sharding import BackwardPrefetch, FsdpUnits, Host, Prefetch, ReduceDtype, Way
from .switches import Attention, Compile, Fusion, Loss, Offload, Optimizer, OptimizerKernel
from .tuning import Adapter, Dtype, QuantStorage, Targets

_LEAST_WIDTH = 60
#: Flags that one command has and people try with others.
_OF_ESTIMATE = ("--format", "--page")

#: Of each field of a run: what stands for the value in the help, and what is said of it.
RUN_HELP = {
    "name": ("TEXT", "what a model of your own is called"),
    "family": ("NAME", f"whose classes build a model of your own: {', '.join(FAMILIES)}"),
    "sequence": ("TOKENS", "tokens in a sequence"),
    "micro_batch": ("N", "sequences that a GPU works on at a time"),
    "micro_batches": ("N", "micro-batches that make one optimizer step"),
    "recipe": ("NAME", " or ".join(recipe.RECIPES)),
    "recompute": ("NAME", ", ".join(Recompute)),
    "implementation": ("NAME", f"whose way of running a step: {', '.join(Implementation)}"),
    "attention": ("NAME", f"of an implementation other than paper: {', '.join(Attention)}"),
    "loss": ("NAME", f"the same: {', '.join(Loss)}"),
    "optimizer": ("NAME", f"the same, in place of the recipe's Adam: {', '.join(Optimizer)}"),
    "optimizer_kernel": ("NAME", f"the same, of AdamW: {', '.join(OptimizerKernel)}"),
    "hold_logits": ("", "the same: the logits are held until the step ends"),
    "clip": ("", "the same: gradients are clipped before the optimizer steps"),
    "optimizer_in_backward": ("", "the same: each weight is updated as its gradient arrives"),
    "offload": ("NAME", f"the same, to the CPU until the backward pass: {', '.join(Offload)}"),
    "mlp": ("NAME", f"the same, activation and gate by one kernel or several: {', '.join(Fusion)}"),
    "norm_kernel": ("NAME", f"the same, RMSNorm by one kernel or several: {', '.join(Fusion)}"),
    "dropout": ("on|off", "the same: whether the model's dropouts drop anything"),
    "compile": ("NAME", f"of torchtitan, by torch.compile: {', '.join(Compile)}"),
    "permutation": (
        "NAME",
        f"of Megatron: experts' tokens in order by one kernel or several: {', '.join(Fusion)}",
    ),
    "mtp_layers": ("N", "of Megatron: further layers, each of which predicts a token further on"),
    "adapter": ("NAME", f"what is trained in place of all weights: {', '.join(Adapter)}"),
    "adapter_rank": ("N", "rank of the adapters"),
    "adapter_targets": ("NAME", f"products that get one: {', '.join(Targets)}"),
    "adapter_dtype": ("NAME", f"dtype of the adapters: {', '.join(Dtype)}"),
    "adapter_dropout": ("", "something is dropped of what goes into the adapters"),
    "frozen_dtype": ("NAME", "dtype of what is frozen, with qlora of what is not in 4 bits"),
    "quant_storage": (
        "NAME",
        f"qlora: what 4-bit codes lie in; FSDP shares no uint8: {', '.join(QuantStorage)}",
    ),
    "data": ("N", "replicas of the model: data parallelism"),
    "zero": (
        "STAGE",
        "ZeRO over the replicas: 0 (off), 1 optimizer, 2 and gradients, 3 and weights",
    ),
    "tensor": ("N", "GPUs that share each layer: tensor parallelism"),
    "sequence_parallel": ("", "split the tokens between the tensor-parallel GPUs too"),
    "context": ("N", "GPUs that share each sequence: context parallelism"),
    "context_exchange": (
        "NAME",
        f"how they exchange keys and values: {', '.join(layout.Exchange)}",
    ),
    "pipeline": ("N", "pipeline stages that share the stack of layers"),
    "schedule": ("NAME", f"how the stages take turns: {', '.join(Schedule)}"),
    "interleave": ("N", "parts of the model on each stage, which take turns"),
    "layers_per_stage": ("LIST", "each stage's layers, such as 8,8,8,7"),
    "expert": ("N", "GPUs that share out the experts: expert parallelism"),
    "expert_tensor": ("N", "GPUs that share each expert"),
    "routing": ("NAME", f"how tokens choose experts: {', '.join(layout.Routing)}"),
    "sharding": ("NAME", f"whose data parallelism, not of paper: {', '.join(Way)}"),
    "replicate": ("N", "FSDP: copies of the sharded model (hybrid sharding)"),
    "reshard_after_forward": ("", "FSDP: weights are freed until the backward pass (FULL_SHARD)"),
    "fsdp_units": ("NAME", f"FSDP2: what is gathered with the layers: {', '.join(FsdpUnits)}"),
    "prefetch": ("NAME", f"FSDP2: who gathers the next layer: {', '.join(Prefetch)}"),
    "reduce_dtype": ("NAME", f"FSDP: what gradients are summed in: {', '.join(ReduceDtype)}"),
    "sync_each_batch": ("", "FSDP, Hugging Face: gradients are reduced after every micro-batch"),
    "backward_prefetch": (
        "NAME",
        f"FSDP1: when the layer before is gathered: {', '.join(BackwardPrefetch)}",
    ),
    "forward_prefetch": ("", "FSDP1: the next layer is gathered as one begins"),
    "use_orig_params": ("", "FSDP1: the optimizer is given the model's own weights"),
    "bucket_views": ("", "DDP: gradients live in its buckets (gradient_as_bucket_view)"),
    "first_step": ("", "DDP: the first step, which makes the optimizer's states as it ends"),
    "reduce_bucket_size": ("N", "DeepSpeed: how many numbers its bucket of gradients has"),
    "overlap_comm": ("", "DeepSpeed: a second bucket is filled while one is summed"),
    "prefetch_bucket_size": ("N", "DeepSpeed's stage 3: numbers gathered ahead in one go"),
    "param_persistence_threshold": ("N", "DeepSpeed's stage 3: weights so small stay whole"),
    "max_live_parameters": ("N", "DeepSpeed's stage 3: how much is gathered at most, in numbers"),
    "offload_param": ("NAME", f"weights elsewhere (FSDP, DeepSpeed's stage 3): {', '.join(Host)}"),
    "offload_optimizer": (
        "NAME",
        f"DeepSpeed: its optimizer's states elsewhere: {', '.join(Host)}",
    ),
    "gpu": ("ID", "the GPU to fit into (see training-memory gpus), or none"),
}
_TUNING = tuple(tuning.USUAL)
_SPLITTING = (*layout.USUAL, *sharding.USUAL)

#: Of each field of a shape: what is said of it in the help.
SHAPE_HELP = {
    "layers": "layers",
    "hidden": "features of a token between layers",
    "heads": "attention heads",
    "kv_heads": "heads of keys and values; fewer than heads is grouped-query attention",
    "head_dim": "features of a head",
    "ffn": "features inside the feed-forward layer",
    "vocabulary": "entries of the vocabulary",
    "positions": "learned positions; 0 where they are rotary",
    "gated": "a gate beside the feed-forward layer's first projection",
    "activation": "the feed-forward layer's non-linearity",
    "norm": "layernorm or rmsnorm; fused or unfused mean --norm-kernel",
    "norm_bias": "biases in the norms",
    "norms_per_layer": "norms in a layer: 2 or 4",
    "post_norm": "norms after attention and feed-forward, not before",
    "qk_norm": "norms of queries and keys: none, head or full",
    "final_norm": "a norm after the last layer",
    "tied": "the output head is the token embedding",
    "qkv_bias": "biases of queries, keys and values",
    "output_bias": "bias of attention's output",
    "mlp_bias": "biases in the feed-forward layer",
    "head_bias": "bias of the output head",
    "experts": "experts in a layer; 0 is a dense model",
    "experts_per_token": "experts that a token goes through",
    "expert_ffn": "features inside an expert",
    "shared_experts": "experts that every token goes through",
    "shared_expert_ffn": "features inside each shared expert",
    "shared_expert_gate": "a learned gate on the shared experts' output",
    "dense_layers": "first layers without experts",
    "q_lora_rank": "latent attention: width of the compressed queries",
    "kv_lora_rank": "latent attention: width of the compressed keys and values; 0 is none",
    "qk_nope_head_dim": "latent attention: features of a head without position",
    "qk_rope_head_dim": "latent attention: features of a head with position",
    "v_head_dim": "latent attention: features of a head's values",
}


def flag(field: str) -> str:
    """A field's flag: ``--micro-batch``."""
    return "--" + field.replace("_", "-")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, which argparse would import shutil at every start to learn."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ["COLUMNS"])
        except (KeyError, ValueError):
            try:
                width = os.get_terminal_size().columns
            except OSError:
                width = 80
        super().__init__(prog, max_help_position=28, width=min(max(width, _LEAST_WIDTH), 100) - 2)


class Parser(argparse.ArgumentParser):
    """One command's parser, which raises what argparse would print and exit with."""

    def __init__(
        self,
        command: str,
        usage: str,
        *,
        description: str,
        epilog: str | None = None,
        takes: Sequence[str] = (),
    ) -> None:
        #: What words that are no flags are, in order: each is a field of what is read.
        self.takes = tuple(takes)
        super().__init__(
            prog=f"training-memory {command}",
            usage=f"training-memory {command} {usage}",
            description="\n".join(wrapped(description, 76)),
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
        )
        self.add_argument("-h", "--help", action="store_true", help="this text")
        self.add_argument("--json", action="store_true", help="print one JSON object instead")

    def read(self, arguments: Sequence[str]) -> tuple[dict[str, object], list[InputError]]:
        """The values given, by field, and what was given that is no flag or lacks its value."""
        try:
            found, rest = self.parse_known_args(list(arguments), argparse.Namespace())
        except argparse.ArgumentError as error:
            name = (error.argument_name or "").split("/")[0]
            lacks = "expected" in error.message
            allowed = f"it needs a value: {name} VALUE" if lacks else "it takes no value"
            return {}, [InputError(name, None, allowed)]
        given = {name: value for name, value in vars(found).items() if value is not None}
        for name in self.takes:
            # argparse would take no words after flags, so they are taken from what it left.
            word = next((word for word in rest if word == "-" or not word.startswith("-")), None)
            if word is not None:
                given[name] = word
                rest.remove(word)
        return given, self._unknown(rest)

    def _unknown(self, rest: Sequence[str]) -> list[InputError]:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        errors, after_flag = [], False
        for word in rest:
            if word.startswith("-") and word.strip("-"):
                name = word.partition("=")[0]
                if name in _OF_ESTIMATE:
                    allowed = f"estimate has {name}, this command does not"
                    errors.append(InputError(name, None, allowed))
                else:
                    # Two dashes are no likeness.
                    near = nearest(name.strip("-"), [one.strip("-") for one in known], cutoff=0.65)
                    near = near and f"--{near}"
                    errors.append(InputError(name, None, "there is no such flag", suggestion=near))
                after_flag = True
            elif not after_flag:
                allowed = "every value follows the flag it is for"
                hint = f"--model {word}" if word in models() else None
                errors.append(InputError("argument", word, allowed, suggestion=hint))
        return errors


def run_parser(command: str, *, description: str, epilog: str, takes: Sequence[str] = ()) -> Parser:
    """The parser of a command that takes a run, after the words that ``takes`` names."""
    words = "".join(f"[{name.upper()}] " for name in takes)
    usage = f"{words}[--model ID] [--config FILE ...] [--run FILE] [flag ...]"
    parser = Parser(command, usage, description=description, epilog=epilog, takes=takes)
    parser.add_argument("--units", metavar="UNIT", help="GB (10^9 bytes, the usual) or GiB (2^30)")
    source = parser.add_argument_group("the model")
    known = "a model of the catalog (see training-memory models), or custom with its shape as flags"
    source.add_argument("--model", metavar="ID", help=f"{known}; usually {DEFAULTS['model']}")
    source.add_argument(
        "--config",
        metavar="FILE",
        action="append",
        help="a config.json or a training configuration (see training-memory read), or - for "
        "standard input; several add up",
    )
    source.add_argument(
        "--run", metavar="FILE", help="a run, or an estimate, as JSON; flags change it (- as above)"
    )
    run = parser.add_argument_group("the run")
    tuned = parser.add_argument_group("fine-tuning")
    splitting = parser.add_argument_group("splitting over GPUs")
    for field in DEFAULTS:
        if field not in ("model", "shape"):
            metavar, said = RUN_HELP.get(field, ("VALUE", field.replace("_", " ")))
            _add(
                splitting if field in _SPLITTING else tuned if field in _TUNING else run,
                field,
                metavar=metavar,
                said=f"{said} (usually {_usual(field)})",
            )
    run.add_argument(
        "--accumulate", dest="micro_batches", metavar="N", help="another word for --micro-batches"
    )
    run.add_argument(
        "--gradient-dtype",
        metavar="NAME",
        help="bf16 or fp32: the recipe like the one named, with such gradients",
    )
    shape = parser.add_argument_group("the shape: any field of the model, changed")
    for field in SHAPE_FIELDS:
        _add(shape, field, metavar="VALUE", said=SHAPE_HELP.get(field, field.replace("_", " ")))
    return parser


def add_rank(parser: Parser) -> None:
    """The flag for the answer of one GPU, where they differ."""
    parser.add_argument(
        "--rank",
        metavar="N",
        help="the answer of one GPU, by its number from 0, in place of the fullest one's; pipeline "
        "stages are counted last, as Megatron-LM does",
    )


def add_format(parser: Parser) -> None:
    """Flags for an answer to take away."""
    group = parser.add_argument_group("an answer to take away")
    group.add_argument(
        "--format", metavar="NAME", help="json, csv, svg, markdown, bibtex or link, on its own"
    )
    group.add_argument(
        "--page",
        metavar="ADDRESS",
        help="where the calculator's page is, for links; without it, a link is its fragment",
    )


def read_parser(command: str, *, description: str, epilog: str) -> Parser:
    """The parser of the command that reads other programs' files."""
    parser = Parser(command, "FILE ... [flag ...]", description=description, epilog=epilog)
    parser.add_argument("config", nargs="*", metavar="FILE", help="a file, or - for standard input")
    unsaid = parser.add_argument_group("what files do not say")
    for field in ("data", "tensor", "pipeline", "vocabulary"):
        metavar, said = RUN_HELP.get(field, ("VALUE", SHAPE_HELP.get(field, "")))
        _add(unsaid, field, metavar=metavar, said=said)
    return parser


def _add(group: argparse._ArgumentGroup, field: str, *, metavar: str, said: str) -> None:
    is_flag = Model.__annotations__.get(field) == "bool" or isinstance(DEFAULTS.get(field), bool)
    if is_flag:
        action = argparse.BooleanOptionalAction
        group.add_argument(flag(field), action=action, default=None, help=said)
    else:
        group.add_argument(flag(field), metavar=metavar, help=said)


def _usual(field: str) -> str:
    usual = DEFAULTS[field]
    if isinstance(usual, bool):
        return "so" if usual else "not"
    if field in ("name", "family"):
        return "none"
    if usual is None:
        return "as the implementation has it"
    return f"{usual:,}" if isinstance(usual, int) else str(usual)


def list_parser(command: str, *, description: str, epilog: str | None = None) -> Parser:
    """The parser of a command that lists names, all or those with certain words in them."""
    parser = Parser(command, "[WORD ...] [--json]", description=description, epilog=epilog)
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only names with every WORD in them"
    )
    return parser
