#!/usr/bin/env bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --job-name=llama3
TP=${TP:-4}
OPTIONS=" \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --seq-length 8192 --max-position-embeddings 8192 \
  --position-embedding-type rope --rotary-base 500000 \
  --swiglu --normalization RMSNorm --disable-bias-linear \
  --untie-embeddings-and-output-weights --vocab-size 128256 \
  --make-vocab-size-divisible-by 128 \
  --bf16 --sequence-parallel --use-distributed-optimizer \
  --recompute-activations --use-flash-attn"
srun --ntasks-per-node=8 bash -c "echo start"
python -u pretrain_gpt.py $OPTIONS \
  --tensor-model-parallel-size "$TP" \
  --micro-batch-size=2 \
  --global-batch-size=128 \
  --save /checkpoints/$SLURM_JOB_ID
