"""PyTorch as referee: what a training step really holds, traced on fake tensors without a GPU."""
