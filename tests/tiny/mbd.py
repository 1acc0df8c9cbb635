"""Multi-band diffusion as audiocraft saves it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.tiny.networks import mbd_config
from tts_core.codecs.mbd import MbdBandConfig, MbdConfig, MbdScheduleConfig, MbdUnetConfig

CONFIG = mbd_config()
FIRST, SECOND = (band.unet for band in CONFIG.bands)
SCHEDULE = CONFIG.bands[0].schedule


def published_cfg(band: MbdBandConfig, sample_rate: int) -> dict[str, Any]:
    """A band's cfg as the published file has it, with entries that do not matter."""
    unet = {name: getattr(band.unet, name) for name in MbdUnetConfig.__dataclass_fields__}
    schedule = {name: getattr(band.schedule, name) for name in MbdScheduleConfig.__dataclass_fields__}
    off = {"bilstm": False, "transformer": False, "cross_attention": False}
    processor = {"name": "multi_band_processor", "num_samples": 10000, "use": band.processor is not None}
    processor["n_bands"] = band.processor.n_bands if band.processor else 8
    processor["power_std"] = list(band.processor.power_std) if band.processor else 0.4
    return {
        "channels": 1,
        "sample_rate": sample_rate,
        "schedule": {**schedule, "repartition": "power", "variance": "beta", "rescale": 1.0, "n_bands": None},
        "diffusion_unet": {**unet, **off, "emb_all_layers": True, "dropout": 0.0},
        "processor": processor,
        "filter": {"use": True, "n_bands": 4, "idx_band": 0, "cutoffs": None},
    }


def published_content(config: MbdConfig, tensors: Mapping[str, Any]) -> dict[Any, Any]:
    """Content for torch.save, with cfg as plain dicts. tensors: by canonical names."""
    content: dict[Any, Any] = {"sample_rate": config.sample_rate, "n_bands": len(config.bands)}
    for b, band in enumerate(config.bands):
        states: dict[str, dict[str, Any]] = {"unet": {}, "processor": {}}
        for name, tensor in tensors.items():
            _, index, part, rest = name.split(".", 3)
            if int(index) == b:
                states[part][rest] = tensor
        content[b] = {"cfg": published_cfg(band, config.sample_rate)}
        content[b] |= {"model_state": states["unet"], "processor_state": states["processor"]}
    return content


def write_published(path: Path, content: Mapping[Any, Any]) -> Path:
    """As audiocraft saves it: tensors by torch.save, every `cfg` an OmegaConf object. Returns `path`.

    Tensors are NumPy's or PyTorch's.
    """
    import torch

    def tensor_of(value: Any) -> torch.Tensor:
        return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))

    with stand_ins() as kinds:
        saved = {
            key: {
                name: _omegaconf(part, kinds)
                if name == "cfg"
                else {inner: tensor_of(tensor) for inner, tensor in part.items()}
                for name, part in value.items()
            }
            if isinstance(key, int)
            else value
            for key, value in content.items()
        }
        torch.save(saved, path)
    return path


@contextmanager
def stand_ins() -> Iterator[dict[str, type]]:
    """Classes named as OmegaConf's, importable only inside the context, for pickling."""
    places = {
        "omegaconf.dictconfig": ["DictConfig"],
        "omegaconf.listconfig": ["ListConfig"],
        "omegaconf.nodes": ["AnyNode"],
        "omegaconf.base": ["ContainerMetadata", "Metadata"],
    }
    modules = {name: ModuleType(name) for name in ("omegaconf", *places)}
    kinds = {}
    for module, names in places.items():
        for name in names:
            kinds[name] = type(name, (), {"__module__": module})
            setattr(modules[module], name, kinds[name])
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield kinds
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _omegaconf(value: Any, kinds: Mapping[str, type], parent: Any = None, key: Any = None) -> Any:
    """The objects and attributes that OmegaConf 2.3 pickles, the links to parents included."""
    container = isinstance(value, dict | list)
    kind = "DictConfig" if isinstance(value, dict) else "ListConfig" if container else "AnyNode"
    node = kinds[kind]()
    node._metadata = kinds["ContainerMetadata" if container else "Metadata"]()
    node._metadata.__dict__.update(
        ref_type=Any,
        object_type=type(value) if container else None,
        optional=True,
        key=key,
        flags={},
        flags_root=False,
        resolver_cache=defaultdict(dict),
    )
    node._parent = parent
    if isinstance(value, dict):
        node._content = {name: _omegaconf(item, kinds, node, name) for name, item in value.items()}
    elif isinstance(value, list):
        node._content = [_omegaconf(item, kinds, node, i) for i, item in enumerate(value)]
    else:
        node._val = value
    return node
