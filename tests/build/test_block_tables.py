"""The tables of traced layers: what is equal is counted as equal, and nothing else."""

from dataclasses import replace

from block_tables import blocks, every, summary


def test_every_kept_tensor_of_every_traced_layer_is_equal():
    # The referee is PyTorch itself: docs/data/traces/block-tensors.csv.
    assert len(blocks()) >= 170
    for block in blocks():
        assert block.is_exact, block.row["block"]
        assert block.traced_bytes == block.our_bytes


def test_a_tensor_that_differs_is_not_counted():
    block = blocks()[0]
    (traced, _), *others = block.pairs
    short = replace(block, pairs=((traced, None), *others))
    assert not short.is_exact
    assert short.equal == block.equal - 1
    assert short.our_bytes < short.traced_bytes
    ours = [one for _, one in block.pairs if one]
    assert not replace(block, extra=(ours[0],)).is_exact


def test_the_sum_is_of_all_blocks():
    *families, everything = summary().rows
    for column in range(1, 5):
        assert sum(int(row[column].value) for row in families) == everything[column].value
    assert len(every().rows) == everything[1].value


def test_keys_and_values_are_told_apart():
    # In a layer of the papers' GPT all three are parts of one product.
    for block in blocks():
        if block.row["family"] in ("classic-gpt", "gpt2", "phi3"):
            continue
        for traced, ours in block.pairs:
            if traced["needed_by"].endswith("FlashAttentionBackward0.value"):
                assert ours is not None
                assert "value" in ours.name
