"""The words that all formats share: what a training job says that bears on its memory."""

from __future__ import annotations

from collections.abc import Mapping

#: Of each setting: the run's field that it decides, and what it is in words. A field that a run
#: does not have yet makes its settings "not modelled"; once it has it, nothing changes here.
SETTINGS: Mapping[str, tuple[str, str]] = {
    "model": ("model", "the model, by a config.json"),
    "model_name": ("model", "the model's name"),
    "saved_dtype": ("recipe", "the dtype in which the model's weights are stored"),
    "sequence": ("sequence", "tokens in a sequence"),
    "micro_batch": ("micro_batch", "sequences a GPU works on at a time"),
    "accumulation": ("micro_batches", "micro-batches in a step"),
    "global_batch": ("micro_batches", "sequences in a step, over all GPUs"),
    "pipeline_micro_batch": ("micro_batch", "sequences in a micro-batch of the pipeline"),
    "gpus": ("data", "all GPUs of the job"),
    "nodes": ("data", "machines"),
    "gpus_per_node": ("data", "GPUs in a machine"),
    "replicas": ("data", "groups of GPUs that hold the model whole"),
    "shards": ("data", "GPUs among which the model is spread"),
    "hybrid": ("data", "whether the model is spread within a machine only"),
    "no_shard": ("replicate", "whether every GPU has all of the model"),
    "engine": ("zero", "a DeepSpeed configuration"),
    "zero": ("zero", "what is spread over the replicas"),
    "tensor": ("tensor", "GPUs that share each layer"),
    "sequence_parallel": ("sequence_parallel", "tokens split among them too"),
    "pipeline": ("pipeline", "pipeline stages"),
    "context": ("context", "GPUs that share each sequence"),
    "interleave": ("interleave", "parts of the model on a pipeline stage"),
    "virtual_layers": ("interleave", "layers in such a part"),
    "expert": ("expert", "GPUs among which experts are spread"),
    "expert_tensor": ("expert_tensor", "GPUs that share an expert"),
    "weights_dtype": ("recipe", "the dtype of the weights"),
    "compute_dtype": ("recipe", "the dtype of the operations"),
    "gradient_dtype": ("recipe", "the dtype in which gradients add up"),
    "master": ("recipe", "whether 16-bit weights have a 32-bit copy"),
    "recompute": ("recompute", "what is computed again in backward"),
    "attention": ("attention", "what computes attention"),
    "loss": ("loss", "how the loss is computed"),
    "optimizer": ("optimizer", "the optimizer"),
    "optimizer_kernel": ("optimizer_kernel", "how AdamW goes over the parameters"),
    "clip": ("clip", "whether gradients are clipped"),
    "adapter": ("adapter", "whether adapters are trained beside frozen weights"),
    "base_bits": ("adapter", "bits of a frozen weight"),
    "nested_scales": ("adapter", "whether the scales of such weights are quantized as well"),
    "quant_storage": ("quant_storage", "the dtype in which such weights are stored"),
    "adapter_rank": ("adapter_rank", "the adapters' rank"),
    "adapter_targets": ("adapter_targets", "the products that have adapters"),
    "adapter_dtype": ("adapter_dtype", "the dtype of the adapters"),
    "adapter_dropout": ("adapter_dropout", "whether inputs of adapters are dropped"),
    "reshard_after_forward": ("reshard_after_forward", "whether weights are spread again"),
    "sync_each_batch": ("sync_each_batch", "whether every micro-batch's gradients are reduced"),
    "sharding": ("sharding", "who spreads the model over the replicas"),
    "fsdp_version": ("sharding", "which FSDP does"),
    "backward_prefetch": ("backward_prefetch", "when FSDP1 gathers the layer before"),
    "forward_prefetch": ("forward_prefetch", "whether it gathers the next layer ahead"),
    "use_orig_params": ("use_orig_params", "whether the optimizer is given the model's weights"),
    "reduce_bucket_size": ("reduce_bucket_size", "numbers in a bucket of gradients"),
    "overlap_comm": ("overlap_comm", "whether one bucket is summed while another is filled"),
    "offload_optimizer": ("offload_optimizer", "whether the optimizer is on the host"),
    "offload_param": ("offload_param", "whether the weights are on the host"),
    "prefetch_bucket_size": ("prefetch_bucket_size", "numbers gathered ahead"),
    "param_persistence_threshold": ("param_persistence_threshold", "the least that is spread"),
    "max_live_parameters": ("max_live_parameters", "numbers gathered at most"),
    "fsdp_units": ("fsdp_units", "what FSDP gathers at a time"),
    "optimizer_in_backward": ("optimizer_in_backward", "whether weights are updated in backward"),
    "offload": ("offload", "what waits on the host"),
    "dropout": ("dropout", "whether anything is dropped"),
    "compile": ("compile", "what is compiled"),
    "mlp": ("mlp", "whether the feed-forward layer's activation is one kernel"),
    "norm_kernel": ("norm_kernel", "whether a norm is one kernel"),
}


def field_of(setting: str) -> str:
    """The run's field that a setting decides; the shape's fields are settings under ``shape.``."""
    return "shape" if setting.startswith("shape") else SETTINGS[setting][0]
