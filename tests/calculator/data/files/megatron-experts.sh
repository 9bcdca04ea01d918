#!/usr/bin/env bash
MODEL=(
  --num-layers 24 --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16
  --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope
  --swiglu --normalization RMSNorm --disable-bias-linear --add-qkv-bias
  --untie-embeddings-and-output-weights --vocab-size 151936
)
EXPERTS=(
  --num-experts 60 --moe-router-topk 4 --moe-ffn-hidden-size 1408 --moe-grouped-gemm
  --moe-shared-expert-intermediate-size 5632 --moe-shared-expert-gate
  --moe-layer-freq "([1]*24)" --moe-token-dispatcher-type alltoall --moe-permute-fusion
  --moe-router-dtype fp32 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3
  --moe-expert-capacity-factor 1.25
)
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py "${MODEL[@]}" "${EXPERTS[@]}" \
  --tensor-model-parallel-size 2 --sequence-parallel \
  --expert-model-parallel-size 4 --expert-tensor-parallel-size 1 \
  --micro-batch-size 1 --global-batch-size 16 --bf16 --use-distributed-optimizer
