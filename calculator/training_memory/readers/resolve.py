"""From what files say to a run: settings of several files made one, and a run's fields of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import tuning
from ..catalog import build
from ..errors import InputError
from ..implementations import Implementation
from ..model import SHAPE_FIELDS, Model
from ..records import dataclass
from ..run import DEFAULTS
from ..sharding import OF_STAGE_3, Sharding, Way, left_out, own_way
from .findings import findings
from .fsdp import OFFLOADED
from .names import model_id
from .report import Finding, Report, Standing
from .settings import SETTINGS, field_of
from .stand_in import as_textbook
from .table import Part
from .training_arguments import COMPILED

#: Settings that are a field of the run as they are.
_DIRECT = tuple(
    setting
    for setting, (field, _) in SETTINGS.items()
    if field == setting and setting not in ("model", "micro_batch", "adapter")
)


FIRST = Sharding(sharding=Way.FSDP1)
#: DeepSpeed's settings where its stages share with nobody.
ALONE = "DeepSpeed on one GPU is not followed; if there are more, say --data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A run's fields as files say them; ``model`` is a shape that one of them gives.

    ``origin`` tells where a field is from, for errors.
    """

    fields: Mapping[str, object]
    model: Model | None
    origin: Mapping[str, str]
    report: Report


def resolve(parts: Sequence[Part], given: Mapping[str, object]) -> Resolved:
    """What the parts say together; later parts go before earlier ones.

    ``given`` are degrees of splitting that someone said beside the files (``data``, ``tensor``,
    ``pipeline``), on which the number of micro-batches depends. Raises :class:`InputError` where
    numbers do not divide.
    """
    return _Resolver(parts, given).resolved()


class _Resolver:
    def __init__(self, parts: Sequence[Part], given: Mapping[str, object]) -> None:
        self.parts = parts
        self.given = given
        self.findings: list[Finding] = []
        self.fields: dict[str, object] = {}
        self.way = ""
        self.settings: dict[str, object] = {}
        self.origin: dict[str, str] = {}
        #: Settings that are not followed beside what else is set, and what is said of them.
        self.dropped: dict[str, str] = {}
        for part in parts:
            self.settings = {**part.assumed, **self.settings}
        for part in parts:
            self.settings |= part.settings
        for part in parts:
            for note in part.notes:
                for setting in note.settings:
                    if setting in part.settings:
                        self.origin[field_of(setting)] = f"{note.key} in {part.file}"

    def resolved(self) -> Resolved:
        trains = any(part.format.id != "config" for part in self.parts)
        self._model(trains)
        if trains:
            self._way()
            self._batch(self._data())
            self._recipe()
            self._adapters()
            engine = self.settings.get("engine")
            if engine and not any(part.format.id == "deepspeed" for part in self.parts):
                said = "add that file: it says how the job is spread over its GPUs"
                self._say(Standing.ASKED, "DeepSpeed", engine, "zero", said)
            for setting in _DIRECT:
                if setting in self.settings and setting in DEFAULTS:
                    self.fields[setting] = self.settings[setting]
            if "sequence" not in self.settings and not self._asked("sequence"):
                said = (
                    "no file says how many tokens a sequence has: say --sequence "
                    f"({DEFAULTS['sequence']:,} was taken)"
                )
                self._say(Standing.ASKED, "sequence", "not said", "sequence", said)
            self._compiled()
            self._away()
            for name in self.dropped:
                self.fields.pop(name, None)
            if self.fields.get("tensor", 1) == 1:
                self.fields.pop("sequence_parallel", None)  # there is no one to split with
            if self.fields.get("optimizer", "adamw") != "adamw":
                self.fields.pop("optimizer_kernel", None)
        model = self.settings.get("model")
        report = Report(
            files={part.file: part.format.name for part in self.parts},
            findings=[*findings(self.parts, self.settings, self.dropped), *self.findings],
        )
        if self.fields.get("implementation") == "paper":
            report = report.in_the_textbooks_way(self.fields, self.way)
            self.fields = as_textbook(self.fields)
        return Resolved(
            fields=self.fields,
            model=model if isinstance(model, Model) else None,
            origin=self.origin,
            report=report,
        )

    def _asked(self, field: str) -> bool:
        """Whether a note asks for a field already."""
        return any(
            note.standing is Standing.ASKED and field in map(field_of, note.settings)
            for part in self.parts
            for note in part.notes
        )

    def _say(
        self, standing: Standing, key: str, value: object, field: str = "", said: str = ""
    ) -> None:
        finding = Finding(
            standing=standing, file="", key=key, value=str(value), field=field, said=said
        )
        self.findings.append(finding)

    def _model(self, trains: bool) -> None:
        name = self.settings.get("model_name")
        model = self.settings.get("model")
        if isinstance(model, Model) and isinstance(name, str):
            self.settings["model"] = replace(model, name=name)
        if "model" in self.settings or "model" in self.given:
            return
        if isinstance(shape := self.settings.get("shape"), dict):
            self.settings["model"] = self._shaped(shape)
            return
        if isinstance(name, str) and (known := model_id(name)):
            self.fields["model"] = known
            return
        if not trains:
            return
        said = "no file gives the model's shape: add its config.json, or name it with --model"
        self._say(Standing.ASKED, "model", name or "none", "model", said)

    def _shaped(self, shape: Mapping[str, object]) -> Model:
        """The model that arguments describe, with what was said beside the files."""
        said = {name: self.given[name] for name in SHAPE_FIELDS if name in self.given}
        where = next(part.file for part in self.parts if "shape" in part.settings)
        if "vocabulary" not in {**shape, **said}:
            allowed = "the tokenizer decides it, which is not here: say --vocabulary"
            raise InputError(f"vocabulary in {where}", None, allowed)
        return build({"name": where, "source": where, **shape, **said})

    def _way(self) -> None:
        """Whose way of running the step it is: a training program's goes before an engine's."""
        ways = [part.format.implementation for part in self.parts if part.format.implementation]
        way = ways[-1]
        for wanted in ("megatron", "torchtitan"):
            way = wanted if wanted in ways else way
        if way not in tuple(Implementation):
            self.way, way = way, "paper"
        self.fields["implementation"] = way

    def _data(self) -> int:
        """How many replicas there are, each of which has a batch of its own."""
        replicas = _whole(self.settings.get("replicas", 1))
        data = self._all_replicas(replicas)
        self.fields["data"] = data
        if "shards" in self.settings and data > 1:
            self.settings.setdefault("zero", 3)
        nodes = _whole(self.settings.get("nodes", 1))
        if self.settings.get("hybrid") and nodes > 1 and data % nodes == 0:
            replicas = nodes
        first = data > 1 and self._is_first_fsdp()
        if first and self.settings.get("no_shard"):
            self.settings["zero"] = 3
            self.fields["replicate"] = data
        elif self.settings.get("zero") == 3 and 1 < replicas < data:
            self.fields["replicate"] = replicas
        for name in ("fsdp_units",) if first else left_out(FIRST, second=True):
            self.settings.pop(name, None)  # the other version's
        if not self.settings.get("zero") or data == 1:
            for name in ("reshard_after_forward", "fsdp_units", "sync_each_batch"):
                self.settings.pop(name, None)  # nothing is gathered
        if self.settings.get("zero") != 3 or self.settings.get("sharding") == "deepspeed":
            self.settings.pop("sync_each_batch", None)  # FSDP alone keeps gradients whole
        by_deepspeed = data > 1 and self.settings.get("sharding") == "deepspeed"
        every = (1, 2, 3)
        stages = {"reduce_bucket_size": every, "offload_optimizer": every, "overlap_comm": (1, 2)}
        if self.settings.get("sharding") == "deepspeed":
            stages["offload_param"] = (3,)
        for name in (*stages, *OF_STAGE_3):
            wanted = self.settings.get("zero") in stages.get(name, (3,))
            if data == 1 and wanted and self.settings.get("sharding") == "deepspeed":
                self.dropped[name] = ALONE  # it has these on one GPU as well
            elif not by_deepspeed or not wanted:
                self.settings.pop(name, None)
        if self.settings.get("zero") != 3 and self.settings.get("offload_optimizer") == "nvme":
            self.settings["offload_optimizer"] = "cpu"  # only stage 3 has it on disks
        if first:
            self.settings["sharding"] = str(Way.FSDP1)
        elif not by_deepspeed:
            self.settings.pop("sharding", None)  # there is nobody to share with
            if self.settings.get("optimizer_kernel") == "deepspeed":
                self.settings.pop("optimizer_kernel")  # PyTorch's takes as much
        return data

    def _is_first_fsdp(self) -> bool:
        """Whether FSDP's first version shares the model out: accelerate's own, unless it is told.

        transformers 5.24 takes the second where a trainer's arguments ask for FSDP; axolotl leaves
        it to accelerate (its setup_fsdp_envs).
        """
        shares = [part.format.id for part in self.parts if part.settings.get("shards") == -1]
        if not shares or self.fields["implementation"] != Implementation.HUGGINGFACE:
            return False
        usual = 1 if shares[-1] in ("accelerate", "axolotl") else 2
        return self.settings.get("fsdp_version", usual) == 1

    def _all_replicas(self, replicas: int) -> int:
        if "data" in self.given:
            return _whole(self.given["data"])
        tensor, pipeline = (
            _whole(self.given.get(name, self.settings.get(name, 1)))
            for name in ("tensor", "pipeline")
        )
        inner = tensor * pipeline * _whole(self.settings.get("context", 1))
        gpus = self.settings.get("gpus")
        if gpus is None and "gpus_per_node" in self.settings:
            gpus = _whole(self.settings["gpus_per_node"]) * _whole(self.settings.get("nodes", 1))
        shards = _whole(self.settings.get("shards", -1))
        if shards > 0:
            return replicas * shards
        if gpus is not None:
            if _whole(gpus) % inner:
                allowed = (
                    f"tensor × pipeline × context is {inner}, so the number of GPUs must be a "
                    "multiple of that"
                )
                raise InputError(self.origin.get("data", "GPUs"), gpus, allowed)
            return _whole(gpus) // inner
        open_ended = "replicas" not in self.settings or "shards" in self.settings
        if open_ended and not self._asked("data"):
            said = f"no file says how many GPUs there are: say --data ({replicas} was taken)"
            self._say(Standing.ASKED, "GPUs", "not said", "data", said)
        return replicas

    def _batch(self, data: int) -> None:
        micro = self.settings.get("micro_batch")
        whole = self.settings.get("global_batch")
        accumulation = self.settings.get("accumulation")
        if micro is None and whole is not None and accumulation is not None:
            micro = self._divided(_whole(whole), data * _whole(accumulation))
        if micro is None and self._asked("micro_batch"):
            pass
        elif micro is None:
            said = "no file says how many sequences a GPU works on at a time: say --micro-batch"
            self._say(Standing.ASKED, "micro-batch", "not said", "micro_batch", said)
        else:
            self.fields["micro_batch"] = micro
        if accumulation is None and whole is not None and micro is not None:
            accumulation = self._divided(_whole(whole), data * _whole(micro))
        times = _whole(accumulation) if accumulation is not None else 1
        inner = self.settings.get("pipeline_micro_batch")
        if inner is not None and micro is not None and _whole(self.settings.get("pipeline", 1)) > 1:
            times *= self._divided(_whole(micro), _whole(inner))
            self.fields["micro_batch"] = inner
        self.fields["micro_batches"] = times

    def _divided(self, whole: int, by: int) -> int:
        if whole % by or not whole:
            allowed = (
                f"a step's sequences are shared by the replicas and their micro-batches, so a "
                f"multiple of {by:,} is needed (say how many replicas with --data)"
            )
            raise InputError(self.origin.get("micro_batches", "batch size"), whole, allowed)
        return whole // by

    def _recipe(self) -> None:
        """The numbers that are kept for a parameter, by dtype of weights and operations."""
        weights = self.settings.get("weights_dtype", self.settings.get("saved_dtype"))
        compute = self.settings.get("compute_dtype")
        if "shards" in self.settings and compute in ("bf16", "fp16"):
            weights = "fp32"  # FSDP's mixed precision keeps its shards in FP32
        if self.settings.get("master") and compute in ("bf16", "fp16"):
            # DeepSpeed adds gradients up in their own dtype where nothing is said
            # (runtime/engine.py, get_data_types).
            wide = self.settings.get("gradient_dtype", compute) == "fp32"
            recipe = "mixed-adam-fp32-grad" if wide else "mixed-adam"
        elif weights in ("bf16", "fp16"):
            recipe = "bf16-adam"
        elif compute in ("bf16", "fp16"):
            recipe = "autocast-adam"
        elif compute is None and weights is None and self._asked("recipe"):
            recipe = "fp32-adam"
        elif compute is None and weights is None:
            said = "no file says in which dtype it trains: say --recipe (FP32 was taken)"
            self._say(Standing.ASKED, "precision", "not said", "recipe", said)
            recipe = "fp32-adam"
        else:
            recipe = "fp32-adam"
        if "fp16" in (weights, compute):
            said = "counted as bfloat16 is: FP16 takes the same bytes"
            self._say(Standing.UNDERSTOOD, "dtype", "fp16", "recipe", said)
        if "weights_dtype" not in self.settings and "saved_dtype" in self.settings:
            said = (
                "weights are taken to be trained in the dtype they are stored in, as transformers "
                "5 loads them; version 4 loaded FP32 unless told otherwise"
            )
            self._say(Standing.ASSUMED, "dtype", weights, "recipe", said)
        self.fields["recipe"] = recipe

    def _compiled(self) -> None:
        """What torch.compile has, where that is followed: torchtitan's, without shared layers."""
        fields = self.fields
        if "compile" not in fields:
            return
        if fields.get("loss", "full") != "full":
            fields["compile"] = "layers"
        plain = fields["implementation"] == "torchtitan" and fields.get("tensor", 1) == 1
        if not plain or fields.get("offload", "none") != "none":
            fields.pop("compile")
            self.dropped["compile"] = COMPILED

    def _away(self) -> None:
        """What FSDP2 leaves in the CPU's memory, where that is followed."""
        fields = self.fields
        here = fields.get("offload_param", "none") == "none"
        if not here and fields.get("replicate") == fields["data"]:
            self.dropped["offload_param"] = OFFLOADED
        if here or "sharding" in fields or "offload_param" in self.dropped:
            return
        way = own_way(Implementation(str(fields["implementation"])), _whole(fields.get("zero", 0)))
        if (
            way is not Way.FSDP2
            or fields["data"] == 1
            or fields.get("tensor", 1) != 1
            or "adapter" in fields
            or fields.get("optimizer_in_backward")
        ):
            self.dropped["offload_param"] = OFFLOADED

    def _adapters(self) -> None:
        """Adapters beside frozen weights: of which kind, and what either is kept in."""
        bits, kind = self.settings.get("base_bits"), self.settings.get("adapter", "none")
        own = [name for name in tuning.USUAL if name in self.settings]
        if kind == "none":
            for name in own:
                self.settings.pop(name)
            if bits:
                said = (
                    "quantised weights are not trained without adapters; all were counted in full"
                )
                self._say(Standing.LOST, "weights", f"{bits} bits", "adapter", said)
            return
        self.fields["adapter"] = "qlora" if bits == 4 else "lora"
        if bits != 4 and self.settings.pop("quant_storage", None):
            own.remove("quant_storage")
        if bits == 4 and self.settings.get("nested_scales") is False:
            said = (
                "scales in 32 bits take 0.4 bits a weight more than those of 8, which were counted"
            )
            self._say(Standing.LOST, "scales of the weights", "32 bits", "adapter", said)
        self.fields |= {name: self.settings[name] for name in own if name != "adapter"}
        self.fields["implementation"] = "huggingface"  # PEFT's adapters alone are followed
        narrow = ("bf16", "fp16")
        if self.settings.get("sharding") == "deepspeed" and self.fields["recipe"] == "mixed-adam":
            for name in ("adapter_dtype", "frozen_dtype"):
                self.fields.pop(name, None)  # its engine turns the whole model into 16 bits
            return
        weights = self.settings.get("weights_dtype", self.settings.get("saved_dtype", "fp32"))
        if self.settings.get("adapter_dtype") == "bf16" and weights in narrow:
            self.fields["recipe"] = "bf16-adam"
        elif self.settings.get("compute_dtype") in narrow or weights in narrow:
            self.fields["recipe"] = "autocast-adam"
        if self.fields["recipe"] == "autocast-adam":
            self.fields["frozen_dtype"] = "bf16" if weights in narrow else "fp32"


def _whole(value: object) -> int:
    return int(str(value).replace(",", ""))
