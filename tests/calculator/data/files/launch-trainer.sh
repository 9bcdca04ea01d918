#!/bin/bash
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen3-8B}
NGPU=8
if [ "$FAST" = 1 ]; then ACC=2; else ACC=8; fi
torchrun --nproc_per_node=$NGPU --nnodes 2 run_clm.py \
  --model_name_or_path "$MODEL" \
  --output_dir "$HOME/out" \
  --per_device_train_batch_size 1 --gradient_accumulation_steps $ACC \
  --block_size 4096 --bf16 True --gradient_checkpointing True \
  --optim adafactor --fsdp "full_shard auto_wrap" \
  --learning_rate 1e-5
