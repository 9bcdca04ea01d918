"""An error explained, for the page; the change that would have helped has its button."""

from __future__ import annotations

from ..controls import address
from ..fit import Change
from ..oom.explanation import Explanation
from .oom import Item, Part, parts
from .svg import escape


def oom_html(found: Explanation) -> str:
    """The whole explanation."""
    told = "".join(_part(part) for part in parts(found))
    return told + (_apply(found.change, found) if found.change else "")


def unread(reason: str) -> str:
    """What is said of a text in which no error is known; nothing of an empty one."""
    return f'<p class="tm-bad">{escape(reason[:1].upper() + reason[1:])}.</p>'


def _part(part: Part) -> str:
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in part.sentences)
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(size)}</dd></div>" for name, size in part.facts
    )
    listed = f'<dl class="tm-facts">{facts}</dl>' if facts else ""
    items = "".join(_item(item) for item in part.items)
    tensors = f'<ol class="tm-parted">{items}</ol>' if items else ""
    return f'<p class="tm-heading">{escape(part.heading)}</p>{said}{listed}{tensors}'


def _item(item: Item) -> str:
    return (
        f'<li><span class="tm-tensor">{escape(item.name)}</span>'
        f'<span class="tm-number">{escape(item.size)}</span>'
        f'<span class="tm-formula">{escape(item.formula)}</span>'
        f'<span class="tm-why">{escape(" ".join(item.sentences))}</span></li>'
    )


def _apply(change: Change, found: Explanation) -> str:
    """The button that makes the change; where another step was searched, it goes to that one."""
    fields = dict(change.fields)
    if found.other_step and found.changes_step:
        fields["implementation"] = "huggingface"
    title = escape(change.title)
    return (
        f'<div class="tm-actions"><button type="button" class="tm-quiet" '
        f'data-set="{escape(address(fields))}" aria-label="Apply: {title}">Apply: {title}</button>'
        "</div>"
    )
