"""What a job was doing when it died, by the traceback before its error."""

from __future__ import annotations

import re

from .reading import When

#: Words of a traceback's lines for each thing that a job does; the first that is there decides.
_WORDS = {
    When.SERVING: (r"/vllm/", r"/sglang/", r"/text_generation_server/", r"/lmdeploy/"),
    When.SAVING: (
        r"in _?save(?:_checkpoint|_model|_pretrained|_state_dict|_optimizer\w*)?\b",
        r"in consolidat\w+",
        r"in _gather_\w*state\w*",
    ),
    When.EVALUATION: (r"in evaluat\w*", r"in prediction_step", r"in predict\b", r"in generate\b"),
    When.OPTIMIZER: (
        r"torch/optim/",
        r"optimizer\.step\(",
        r"exp_avg",
        r"/optimizers?/\w+\.py",
        r"bitsandbytes/optim",
        r"in _take_model_step",
        r"cpu_adam|fused_adam",
        r"in initialize_optimizer_states",  # DeepSpeed steps once on zeros as it begins
    ),
    When.CLIPPING: (r"clip_grad",),
    When.RECOMPUTING: (
        r"recompute_fn",
        r"in unpack_hook",
        r"checkpoint\.py\", line \d+, in backward",
    ),
    When.BACKWARD: (r"\.backward\(", r"run_backward", r"in backward\b", r"autograd/graph\.py"),
    When.LOSS: (
        r"cross_entropy",
        r"loss_utils",
        r"nll_loss",
        r"log_softmax",
        r"logits\.float\(\)",
        r"logits = logits",
        r"in \w*[Ll]oss\w*\b[^\n]*\n[^\n]*(?:logits|labels)",
    ),
    When.LOADING: (
        r"from_pretrained",
        r"in convert\b",
        r"in _apply\b",
        r"load_state_dict",
        r"\.to\((?:args\.)?device",
        r"in load_checkpoint",
        r"model\.cuda\(",
        r"deepspeed\.initialize",
    ),
    When.FORWARD: (r"in forward\b", r"_call_impl"),
}
_BEGINS = "Traceback (most recent call last)"
#: Without its first line so much before the error is taken for its traceback.
_USUAL = 6000

_CODE = re.compile(r"^\s*File \"[^\"\n]+\", line \d+, in [^\n]+\n\s+(\S[^\n]*)", re.MULTILINE)


def _lines(before: str) -> str:
    begin = before.rfind(_BEGINS)
    return before[begin:] if begin >= 0 else before[-_USUAL:]


def when(before: str) -> When | None:
    """What the job was doing, where the traceback that ends ``before`` tells."""
    lines = _lines(before)
    for one, words in _WORDS.items():
        if any(re.search(word, lines) for word in words):
            return one
    return None


def innermost(before: str) -> str:
    """The innermost line of code in the traceback that ends ``before``, or nothing."""
    lines = _CODE.findall(_lines(before))
    return lines[-1].strip()[:160] if lines else ""
