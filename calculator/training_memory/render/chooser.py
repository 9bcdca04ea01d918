"""Where a reader's own files are dropped, chosen or pasted in the page; a script makes it work."""

from __future__ import annotations

#: What is read, for those who wonder; the formats page has the whole list.
_FORMATS = (
    "config.json, TrainingArguments, TRL, accelerate, DeepSpeed, torchtitan, Megatron-LM, axolotl, "
    "LLaMA-Factory, torchtune"
)


def chooser(prefix: str) -> str:
    """Where files are dropped, chosen or pasted; a script makes it work."""
    return (
        f'<details class="tm-fold tm-files" data-key="files"><summary><b>Your files</b> '
        f"<span>{_FORMATS}</span></summary>"
        '<div class="tm-drop" data-drop>'
        f'<p class="tm-note">Read in this page: nothing leaves it. Several files add up, such as a '
        "model’s and a trainer’s.</p>"
        f'<label for="{prefix}-files">Choose files, or drop them here</label>'
        f'<input type="file" id="{prefix}-files" multiple data-files>'
        f'<label for="{prefix}-paste">Or paste one</label>'
        f'<textarea id="{prefix}-paste" rows="5" spellcheck="false" autocomplete="off" data-paste>'
        "</textarea>"
        f'<label for="{prefix}-replicas">Replicas, if no file says how many GPUs there are</label>'
        f'<input type="text" id="{prefix}-replicas" size="6" autocomplete="off" data-replicas>'
        '<button type="button" class="tm-preset" data-read>Read</button></div>'
        '<p class="tm-read-said" role="status" data-read-said></p></details>'
    )
