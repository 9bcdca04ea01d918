"""Changes to a run as the lines to write for Hugging Face, DeepSpeed, torchtitan and Megatron.

Names are those of the libraries' own documentation: transformers' ``TrainingArguments`` and
accelerate's configuration file, DeepSpeed's configuration JSON and its AutoTP tutorial,
torchtitan's ``job_config.py``, Megatron-LM's ``arguments.py`` and Megatron FSDP's guide. What a
library has no line for is said, not left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from .blocks.ledger import Recompute
from .cost import global_batch
from .layout import Exchange
from .records import dataclass
from .run import Run
from .sharding import Host, Sharding, Way
from .switches import Attention, Compile, Fusion, Loss, Offload, Optimizer, OptimizerKernel
from .tuning import Adapter, QuantStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """One library's lines for a run's changes; ``lacks`` says what it has no line for."""

    library: str
    lines: tuple[str, ...]
    lacks: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The lines as plain values."""
        return {"library": self.library, "lines": list(self.lines), "lacks": list(self.lacks)}


@dataclass(frozen=True, slots=True)
class _Lacks:
    """Stands among the lines for something that there is no line for."""

    said: str


_Lines = Iterator[str | _Lacks]


def spellings(fields: Mapping[str, object], after: Run) -> tuple[Spelling, ...]:
    """The lines for every library: the fields that were changed, as they are in ``after``."""
    found = []
    for library, write in _LIBRARIES.items():
        said = tuple(write(set(fields), after))
        found.append(
            Spelling(
                library=library,
                lines=tuple(one for one in said if isinstance(one, str)),
                lacks=tuple(one.said for one in said if isinstance(one, _Lacks)),
            )
        )
    return tuple(found)


_BATCH = {"micro_batch", "micro_batches", "data"}
_BUFFERS = {
    "reduce_bucket_size": "reduce_bucket_size",
    "max_live_parameters": "stage3_max_live_parameters",
}
_OF_DEEPSPEED = {"offload_optimizer", *_BUFFERS}
_ZERO = {"data", "zero", "reshard_after_forward", "sharding", "offload_param", *_OF_DEEPSPEED}


def _on_cpu(run: Run) -> str:
    """Whether shards are on the CPU, as files have it."""
    return str(run.sharding.offload_param is Host.CPU).lower()


def _huggingface(changed: set[str], run: Run) -> _Lines:
    layout = run.layout
    if "recompute" in changed:
        yield from _huggingface_recompute(run.recompute)
    if changed & {"micro_batch", "micro_batches"}:
        yield f"per_device_train_batch_size={run.micro_batch},"
        yield f"gradient_accumulation_steps={run.micro_batches},"
    if "sequence" in changed:
        yield f"max_length={run.sequence},  # of trl's SFTConfig; else where the data is cut"
    if changed & {"data", "tensor"}:
        yield f"# accelerate launch --num_processes {layout.gpus}"
    if changed & _ZERO and layout.data > 1:
        if run.sharding.sharding is Way.DEEPSPEED or layout.zero == 1:
            yield "# ds_config.json, of TrainingArguments(deepspeed=...):"
            yield _zero_optimization(run)
        elif layout.zero >= 2:
            yield "# accelerate's file, fsdp_config:"
            yield from _fsdp(run)
            if "offload_param" in changed:
                yield f"fsdp_offload_params: {_on_cpu(run)}"
    if "tensor" in changed and layout.tensor > 1:
        yield f"parallelism_config=ParallelismConfig(tp_size={layout.tensor}),"
    if "sequence_parallel" in changed and layout.sequence_parallel:
        yield _Lacks(
            "sequence parallelism: it comes with the model's tensor-parallel plan, if at all"
        )
    if "pipeline" in changed and layout.pipeline > 1:
        yield _Lacks("pipeline stages: the Trainer has none")
    if "context" in changed and layout.context > 1:
        yield f"parallelism_config=ParallelismConfig(cp_size={layout.context}),"
    if "expert" in changed and layout.expert > 1:
        yield _Lacks("expert parallelism: it comes with the model's plan, if at all")
    yield from _huggingface_switches(changed, run)
    yield from _huggingface_room(changed, run)


def _huggingface_recompute(recompute: Recompute) -> _Lines:
    if recompute is Recompute.NONE:
        yield "gradient_checkpointing=False,"
    elif recompute is Recompute.FULL:
        yield "gradient_checkpointing=True,"
        yield 'gradient_checkpointing_kwargs={"use_reentrant": False},'
    else:
        yield _Lacks(
            "recomputing a part of a layer: the Trainer has no switch; in code, the context_fn of "
            "torch.utils.checkpoint"
        )


def _huggingface_switches(changed: set[str], run: Run) -> _Lines:
    switches = run.switches
    if "attention" in changed:
        fused = switches.attention is Attention.FLASH
        yield f'attn_implementation="{"sdpa" if fused else "eager"}"  # of from_pretrained'
    if "loss" in changed:
        if switches.loss is Loss.FUSED_LINEAR:
            yield "use_liger_kernel=True,"
        elif switches.loss in (Loss.CHUNKED, Loss.FUSED):
            yield _Lacks("another loss: in code, a compute_loss of your own")
        else:
            yield "use_liger_kernel=False,"
    if changed & {"mlp", "norm_kernel"} and "loss" not in changed:
        yield "use_liger_kernel=True,"
    if "compile" in changed:
        compiled = switches.compile is not Compile.NONE
        yield f"torch_compile={compiled},{'  # all of the model in one' if compiled else ''}"
    if changed & {"adapter", "quant_storage"}:
        yield from _huggingface_adapter(run)
    if "hold_logits" in changed:
        yield "del outputs  # in your training loop, once the loss is there"
    if changed & {"optimizer", "optimizer_kernel"}:
        yield f'optim="{_OPTIM[switches.optimizer, switches.optimizer_kernel]}",'


def _huggingface_adapter(run: Run) -> _Lines:
    tuning = run.tuning
    if tuning.trains_all:
        return
    targets = '"all-linear"' if tuning.adapter_targets == "all-linear" else '["q_proj", "v_proj"]'
    yield f"LoraConfig(r={tuning.adapter_rank}, target_modules={targets})  # of peft"
    if tuning.adapter is Adapter.QLORA:
        shared = run.layout.zero == 3 and tuning.quant_storage is QuantStorage.BF16
        stored = ", bnb_4bit_quant_storage=torch.bfloat16" if shared else ""
        yield (
            'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", '
            f"bnb_4bit_use_double_quant=True{stored})  # of from_pretrained"
        )


def _huggingface_room(changed: set[str], run: Run) -> _Lines:
    switches = run.switches
    if "offload" in changed:
        if switches.offload is Offload.CHECKPOINTS:
            yield "model.activation_checkpointing_enable(offload=True)"
        elif switches.offload is Offload.SAVED:
            yield "with torch.autograd.graph.save_on_cpu(pin_memory=True):  # around the forward"
    if "optimizer_in_backward" in changed and switches.optimizer_in_backward:
        yield _Lacks(
            "the optimizer in the backward pass: in code, an optimizer for each weight, stepped by "
            "its register_post_accumulate_grad_hook"
        )


#: transformers' names; ``adamw_torch`` is PyTorch's default, which is foreach.
_OPTIM = {
    (optimizer, kernel): {
        Optimizer.ADAMW: {
            OptimizerKernel.FUSED: "adamw_torch_fused",
            OptimizerKernel.FOREACH: "adamw_torch",
            OptimizerKernel.FORLOOP: "adamw_torch",
            OptimizerKernel.DEEPSPEED: "adamw_torch_fused",
        }[kernel],
        Optimizer.SGD_MOMENTUM: "sgd",
        Optimizer.ADAFACTOR: "adafactor",
        Optimizer.ADAFACTOR_HF: "adafactor",
        Optimizer.MUON: "muon",
        Optimizer.ADAMW_8BIT: "adamw_bnb_8bit",
        Optimizer.PAGED_ADAMW: "paged_adamw_32bit",
        Optimizer.PAGED_ADAMW_8BIT: "paged_adamw_8bit",
    }[optimizer]
    for optimizer in Optimizer
    for kernel in OptimizerKernel
}


def _zero_optimization(run: Run) -> str:
    weights = run.sharding.offload_param
    # What FSDP has on the CPU is the optimizer as well.
    place = run.sharding.offload_optimizer if _deepspeeds(run) else weights
    places = {"offload_optimizer": place, "offload_param": weights}
    more = "".join(
        f', "{key}": {{"device": "{one}"}}' for key, one in places.items() if one is not Host.NONE
    )
    usual = Sharding()
    for name, key in _BUFFERS.items():
        size = getattr(run.sharding, name)
        if size != getattr(usual, name):
            more += f', "{key}": {json.dumps(size)}'
    return f'"zero_optimization": {{"stage": {run.layout.zero}{more}}},'


_ROOM = {"optimizer_in_backward", "offload"}


def _fsdp(run: Run) -> Iterator[str]:
    reshards = run.layout.zero == 3 and run.sharding.reshard_after_forward
    if run.sharding.sharding is Way.FSDP1:
        yield "fsdp_version: 1"
        yield f"fsdp_sharding_strategy: {'FULL_SHARD' if reshards else 'SHARD_GRAD_OP'}"
        return
    yield "fsdp_version: 2"
    yield f"fsdp_reshard_after_forward: {'true' if reshards else 'false'}"


def _deepspeed(changed: set[str], run: Run) -> _Lines:
    layout = run.layout
    if "adapter" in changed:
        yield _Lacks("adapters: they are the model's, by Hugging Face's peft")
    if "recompute" in changed:
        yield _Lacks("recomputation: it is the model's own, model.gradient_checkpointing_enable()")
    if "compile" in changed:
        yield _Lacks("torch.compile: in code, engine.compile()")
    if changed & _BATCH:
        yield f'"train_micro_batch_size_per_gpu": {run.micro_batch},'
        yield f'"gradient_accumulation_steps": {run.micro_batches},'
        yield f'"train_batch_size": {global_batch(run)},'
    if "sharding" in changed and not changed & {"zero", "data"} and not _deepspeeds(run):
        yield _Lacks("FSDP's way to share: it has its own")
    elif changed & _ZERO:
        yield _zero_optimization(run)
    if "tensor" in changed:
        if layout.zero == 3 and layout.tensor > 1:
            yield _Lacks("tensor parallelism with ZeRO-3: AutoTP goes with stages 0 to 2")
        else:
            yield f'"tensor_parallel": {{"autotp_size": {layout.tensor}}},'
    if "sequence_parallel" in changed and layout.sequence_parallel:
        yield _Lacks("sequence parallelism beside tensor parallelism")
    if "pipeline" in changed and layout.pipeline > 1:
        yield f"PipelineModule(layers=…, num_stages={layout.pipeline})  # in code"
    if changed & {"context", "interleave"}:
        yield _Lacks("sharing a sequence or parts of a stage in this way; it has Ulysses' way")
    if "expert" in changed and layout.expert > 1:
        yield f"deepspeed.moe.layer.MoE(…, ep_size={layout.expert})  # in code"
    if changed & {"attention", "loss", "hold_logits", "sequence", "mlp", "norm_kernel"}:
        yield _Lacks("attention, loss, kernels and sequence length: the model's and the data's")
    if "optimizer_kernel" in changed and run.switches.optimizer_kernel is OptimizerKernel.FUSED:
        yield '"optimizer": {"type": "AdamW", "params": {"torch_adam": false}},'
    if changed & _ROOM:
        yield _Lacks("the optimizer in backward and what waits on the CPU: in code")
    if "optimizer" in changed:
        yield _Lacks("another optimizer than its own: pass one to deepspeed.initialize")


def _to_deepspeed(changed: set[str], run: Run) -> bool:
    """Whether nothing about sharing changes but that DeepSpeed does it."""
    return _deepspeeds(run) and "sharding" in changed and not changed & {"zero", "data"}


def _deepspeeds(run: Run) -> bool:
    return run.sharding.sharding is Way.DEEPSPEED


def _torchtitan(changed: set[str], run: Run) -> _Lines:
    layout = run.layout
    if "adapter" in changed:
        yield _Lacks("PEFT's adapters: its own LoRA (0.3's LoRAConverter) is beside the head too")
    if changed & {"micro_batch", "micro_batches", "sequence", "data", "offload_param"}:
        yield "[training]"
        if changed & _BATCH:
            staged = layout.pipeline > 1
            local = run.micro_batch * run.micro_batches if staged else run.micro_batch
            yield f"local_batch_size = {local}"
            yield f"global_batch_size = {global_batch(run)}"
        if "sequence" in changed:
            yield f"seq_len = {run.sequence}"
        if "offload_param" in changed:
            yield f"enable_cpu_offload = {_on_cpu(run)}"
    yield from _torchtitan_parallelism(changed, run)
    if "offload_optimizer" in changed:
        yield _Lacks("an optimizer on the CPU")
    if changed & {*_BUFFERS}:
        yield _Lacks("DeepSpeed's buffers: it has none of them")
    if "recompute" in changed:
        yield from _torchtitan_recompute(run.recompute)
    if "optimizer_kernel" in changed:
        yield "[optimizer]"
        kernel = "for-loop" if run.switches.optimizer_kernel is OptimizerKernel.FORLOOP else None
        yield f'implementation = "{kernel or run.switches.optimizer_kernel}"'
    if "optimizer" in changed:
        yield _Lacks("optimizers other than Adam and AdamW: in code")
    if "attention" in changed:
        yield _Lacks("the attention kernel: it is always PyTorch's fused one")
    if changed & {"loss", "hold_logits", "mlp", "norm_kernel"}:
        yield _Lacks("another loss or other kernels: in code")
    if "compile" in changed:
        yield "[compile]"
        yield f"enable = {str(run.switches.compile is not Compile.NONE).lower()}"
        if run.switches.compile is not Compile.NONE:
            loss = ', "loss"' if run.switches.compile is Compile.LAYERS_AND_LOSS else ""
            yield f'components = ["model"{loss}]'
    if changed & _ROOM:
        yield _Lacks("the optimizer in backward and what waits on the CPU: in code")


def _torchtitan_parallelism(changed: set[str], run: Run) -> _Lines:
    layout = run.layout
    lines: list[str | _Lacks] = []
    if _to_deepspeed(changed, run):
        lines.append(_Lacks("DeepSpeed's way to share: it has FSDP2's"))
    elif changed & (_ZERO - _OF_DEEPSPEED - {"offload_param"}):
        if layout.zero >= 2:
            reshards = layout.zero == 3 and run.sharding.reshard_after_forward
            after = "always" if reshards else "never"
            lines += [
                "data_parallel_replicate_degree = 1",
                f"data_parallel_shard_degree = {layout.data}",
                f'fsdp_reshard_after_forward = "{after}"',
            ]
        elif layout.zero == 1:
            lines.append(_Lacks("ZeRO-1: it shards gradients as well, or nothing"))
        else:
            lines += [
                f"data_parallel_replicate_degree = {layout.data}",
                "data_parallel_shard_degree = 1",
            ]
    if changed & {"tensor", "sequence_parallel"}:
        lines.append(f"tensor_parallel_degree = {layout.tensor}")
        if layout.tensor > 1 and not layout.sequence_parallel:
            lines.append(_Lacks("tensor parallelism alone: it splits the tokens as well"))
    if changed & {"pipeline", "micro_batch", "interleave"} and layout.pipeline > 1:
        lines += [
            f"pipeline_parallel_degree = {layout.pipeline}",
            f'pipeline_parallel_schedule = "{_torchtitan_schedule(run)}"',
            f"pipeline_parallel_microbatch_size = {run.micro_batch}",
        ]
    elif "pipeline" in changed:
        lines.append("pipeline_parallel_degree = 1")
    if "context" in changed:
        lines.append(f"context_parallel_degree = {layout.context}")
        if layout.context > 1:
            rotates = {Exchange.RING: "alltoall", Exchange.ALL_GATHER: "allgather"}
            method = rotates.get(layout.context_exchange, "allgather")
            lines.append(f'context_parallel_rotate_method = "{method}"')
    if "expert" in changed:
        lines.append(f"expert_parallel_degree = {layout.expert}")
    if any(isinstance(line, str) for line in lines):
        yield "[parallelism]"
    yield from lines


def _torchtitan_schedule(run: Run) -> str:
    return "Interleaved1F1B" if run.layout.interleave > 1 else "1F1B"


def _torchtitan_recompute(recompute: Recompute) -> _Lines:
    if recompute is Recompute.SELECTIVE:
        yield _Lacks("recomputing the attention core alone: it keeps what attention gives")
        return
    yield "[activation_checkpoint]"
    if recompute is Recompute.MATMULS:
        yield 'mode = "selective"'
        yield 'selective_ac_option = "op"'
    else:
        yield f'mode = "{recompute}"'


def _megatron(changed: set[str], run: Run) -> _Lines:
    layout = run.layout
    if "adapter" in changed:
        yield _Lacks("adapters: they are the model's, by Hugging Face's peft")
    if "recompute" in changed:
        yield from _megatron_recompute(run.recompute)
    if "compile" in changed:
        yield _Lacks("torch.compile for layers: its kernels are fused by hand")
    if "permutation" in changed:
        unfused = run.switches.permutation is Fusion.UNFUSED
        yield "# without --moe-permute-fusion" if unfused else "--moe-permute-fusion"
    if "mtp_layers" in changed:
        yield f"--mtp-num-layers {run.switches.mtp_layers}"
    if changed & _BATCH:
        yield f"--micro-batch-size {run.micro_batch}"
        yield f"--global-batch-size {global_batch(run)}"
    if "sequence" in changed:
        yield f"--seq-length {run.sequence}"
    if "tensor" in changed:
        yield f"--tensor-model-parallel-size {layout.tensor}"
    if "sequence_parallel" in changed:
        yield "--sequence-parallel" if layout.sequence_parallel else "# without --sequence-parallel"
    if "pipeline" in changed:
        yield f"--pipeline-model-parallel-size {layout.pipeline}"
    if "interleave" in changed and layout.interleave > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {layout.interleave}"
    if "context" in changed:
        yield f"--context-parallel-size {layout.context}"
    if "expert" in changed:
        yield f"--expert-model-parallel-size {layout.expert}"
        yield f"--expert-tensor-parallel-size {layout.expert_tensor}"
    if _to_deepspeed(changed, run):
        yield _Lacks("DeepSpeed's way to share: it has its own")
    elif changed & {"zero", "sharding"}:
        yield from _megatron_zero(layout.zero)
    if changed & {*_BUFFERS}:
        yield _Lacks("DeepSpeed's buffers: it has its own, --ddp-bucket-size")
    if "offload_optimizer" in changed:
        yield "--optimizer-cpu-offload"
    elif "offload_param" in changed:
        yield _Lacks("weights on the CPU; --optimizer-cpu-offload has its optimizer there")
    if "attention" in changed:
        yield "--attention-backend " + (
            "flash" if run.switches.attention is Attention.FLASH else "unfused"
        )
    if "loss" in changed:
        if run.switches.loss is Loss.FULL:
            yield "# without --cross-entropy-loss-fusion"
        elif run.switches.loss is Loss.FUSED:
            yield "--cross-entropy-loss-fusion"
        else:
            yield _Lacks(
                "a loss that never makes all logits; --cross-entropy-loss-fusion saves some"
            )
    if "mlp" in changed:
        yield "# without --no-bias-swiglu-fusion"
    if "norm_kernel" in changed:
        yield "--transformer-impl transformer_engine"
    if changed & {"optimizer", "optimizer_kernel", "hold_logits"}:
        yield _Lacks("the optimizer's kernel and outputs: it has one way (Transformer Engine's)")
    if changed & _ROOM:
        yield _Lacks("the optimizer in backward and what waits on the CPU: in code")


def _megatron_recompute(recompute: Recompute) -> _Lines:
    if recompute is Recompute.NONE:
        yield "# without --recompute-granularity"
    elif recompute is Recompute.SELECTIVE:
        yield "--recompute-granularity selective"
    elif recompute is Recompute.FULL:
        yield "--recompute-granularity full"
        yield "--recompute-method uniform"
        yield "--recompute-num-layers 1"
    else:
        yield _Lacks("recomputing all but the products with weights")


def _megatron_zero(zero: int) -> _Lines:
    if zero == 0:
        yield "# without --use-distributed-optimizer"
        return
    yield "--use-distributed-optimizer"
    if zero >= 2:
        yield "--use-megatron-fsdp"
        strategy = "optim_grads" if zero == 2 else "optim_grads_params"
        yield f"--data-parallel-sharding-strategy {strategy}"


_LIBRARIES: Mapping[str, Callable[[set[str], Run], _Lines]] = {
    "Hugging Face": _huggingface,
    "DeepSpeed": _deepspeed,
    "torchtitan": _torchtitan,
    "Megatron": _megatron,
}
