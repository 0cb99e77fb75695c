"""torch.compile, layer by layer."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from aorta_train.model import layers_of
from aorta_train.options import Compile


def compile_faults(settings: Compile) -> list[str]:
    """Give what torch.compile does not know of these settings, before anything is started."""
    if not settings.enabled:
        return []
    backends = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
    if settings.backend not in backends:
        return [f"compile.backend: is {settings.backend!r}, expected one of {', '.join(sorted(backends))}"]
    if settings.backend != "inductor":
        return []
    inductor = importlib.import_module("torch._inductor")
    modes = {"default", *inductor.list_mode_options()}
    known = set(inductor.list_options())
    unknown = sorted(str(name) for name in settings.options if str(name).replace("-", "_") not in known)
    faults = [f"compile.options: {name!r} is no option of inductor in torch {torch.__version__}" for name in unknown]
    faults += filter(None, (_value_fault(*option) for option in settings.options.items() if option[0] not in unknown))
    if not settings.options and settings.mode not in modes:
        faults.append(f"compile.mode: is {settings.mode!r}, expected one of {', '.join(sorted(modes))}")
    return faults


def _value_fault(name: str, value: Any) -> str | None:
    """Give what torch.compile itself says of an option's value; nothing is compiled before a first call."""
    try:
        torch.compile(len, options={name: value})
    except RuntimeError as error:
        return f"compile.options: {name!r} is {value!r}: {error}"
    return None


def compile_layers(model: nn.Module, settings: Compile) -> None:
    """Compile the forward of each layer; the hooks of FSDP and DDP around it stay as they are."""
    if not settings.enabled:
        return
    wishes: dict[str, Any] = {"backend": settings.backend, "fullgraph": settings.fullgraph, "dynamic": settings.dynamic}
    if settings.options:
        wishes["options"] = settings.options
    elif settings.backend == "inductor":
        wishes["mode"] = settings.mode
    fallback: Any = importlib.import_module("aorta_train.fallback") if settings.fallback else None
    for layer in layers_of(model):
        compiled = torch.compile(layer.forward, **wishes)
        layer.forward = fallback.EagerFallback(compiled, layer.forward) if fallback else compiled


def outcome(model: nn.Module, settings: Compile) -> str:
    """Say how the layers ran: off, compiled, or eager when at least one fell back."""
    if not settings.enabled:
        return "off"
    return "eager" if any(_fell_back(layer.forward) for layer in layers_of(model)) else "compiled"


def _fell_back(forward: Any) -> bool:
    """Look through what was put around a compiled forward."""
    inner = getattr(forward, "inner", None)
    return getattr(forward, "fell_back", False) or (inner is not None and _fell_back(inner))
