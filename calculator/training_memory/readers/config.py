"""A model's config.json among other files: the shape, and what else of it bears on memory."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError, InputErrors
from .huggingface import model_and_keys
from .one_file import read_values
from .report import Standing, shown
from .table import Format, Note, Part, lost, words
from .training_arguments import dtype_row

FORMAT = Format(
    id="config",
    name="Hugging Face config.json",
    written="JSON",
    source="transformers, the configuration class of each model",
    implementation="",
    marks=words(
        """
        model_type architectures hidden_size num_hidden_layers vocab_size num_attention_heads
        intermediate_size n_embd n_layer text_config max_position_embeddings bos_token_id
        transformers_version rope_theta
        """
    ),
    rows=(
        dtype_row(
            "torch_dtype", "saved_dtype", "dtype", "text_config.torch_dtype", "text_config.dtype"
        ),
        lost(
            "quantization_config",
            "quantized weights are not modelled; they were counted at their full size",
            off=(None, {}),
        ),
        lost(
            "attention_dropout",
            "masks of dropout in attention are not counted",
            "text_config.attention_dropout",
            off=(None, 0, 0.0),
        ),
        lost(
            "num_nextn_predict_layers",
            "the module that predicts further tokens is not counted",
            off=(None, 0),
        ),
        lost(
            "vision_config",
            "the part of the model that sees is not counted",
            "audio_config",
            off=(None, {}),
        ),
        lost("router_aux_loss_coef", "the routers' own loss is not counted", off=(None, 0, 0.0)),
    ),
    beside=words(
        """
        *
        """
    ),
    silent=("everything but the model: batch, precision, optimizer and splitting",),
)


def read_config(form: Format, file: str, values: Mapping[str, object]) -> Part:
    """A config.json's part: the model, and what was made of every key.

    Raises :class:`InputErrors`, each under ``KEY in FILE``.
    """
    try:
        model, seen = model_and_keys(values)
    except (InputError, InputErrors) as found:
        errors = found.errors if isinstance(found, InputErrors) else (found,)
        raise InputErrors(
            [
                InputError(
                    f"{one.field} in {file}", one.value, one.allowed, suggestion=one.suggestion
                )
                for one in errors
            ]
        ) from None
    part = read_values(form, file, values)
    notes = []
    for key in sorted(seen):
        value: object = values
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        note = Note(key=key, value=shown(value), standing=Standing.UNDERSTOOD, settings=("model",))
        notes.append(note)
    notes += [note for note in part.notes if note.key not in seen]
    return Part(
        file=file,
        format=form,
        settings={**part.settings, "model": model},
        assumed=part.assumed,
        notes=notes,
    )
