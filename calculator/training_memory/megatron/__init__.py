"""Megatron-Core: what a GPU of each kind holds, and its step by a pipeline's schedule."""
