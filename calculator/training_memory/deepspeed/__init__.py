"""DeepSpeed's ZeRO as DeepSpeed 0.19 runs it, around the steps that a recording has."""
