"""The ledgers: for each implementation of a layer, the tensors it keeps for the backward pass."""
