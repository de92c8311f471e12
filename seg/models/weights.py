"""Weights from a file into a model, whoever wrote the file: ours, DataParallel's, Pytorch-UNet's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from seg.errors import UserError

NESTED = ('state_dict', 'model_state_dict', 'model')  # where a training checkpoint keeps its weights
NO_WEIGHTS = ('mask_values',)  # Pytorch-UNet stores the pixel values of its masks among the weights
DOUBLE_CONV = {'0': 'conv1', '1': 'norm1', '3': 'conv2', '4': 'norm2'}
PYTORCH_UNET = (
    (re.compile(r'inc\.double_conv\.([0134])\.'), lambda m: f'encoder.0.{DOUBLE_CONV[m[1]]}.'),
    (
        re.compile(r'down(\d+)\.maxpool_conv\.1\.double_conv\.([0134])\.'),
        lambda m: f'encoder.{m[1]}.{DOUBLE_CONV[m[2]]}.',
    ),
    (re.compile(r'up(\d+)\.up\.'), lambda m: f'decoder.{int(m[1]) - 1}.up.'),
    (
        re.compile(r'up(\d+)\.conv\.double_conv\.([0134])\.'),
        lambda m: f'decoder.{int(m[1]) - 1}.conv.{DOUBLE_CONV[m[2]]}.',
    ),
    (re.compile(r'outc\.conv\.'), lambda m: 'head.'),
)


@dataclass
class LoadReport:
    """What became of each tensor. Keys are the model's, but `unexpected` has the file's."""

    loaded: list[str] = field(default_factory=list)
    skipped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)  # shape: file, model
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not (self.skipped or self.missing or self.unexpected)

    def __str__(self) -> str:
        lines = [f'{len(self.loaded)} tensors loaded.']
        shapes = [f'{key} (file {list(given)}, model {list(own)})' for key, (given, own) in self.skipped.items()]
        for title, keys in (
            ('skipped, another shape', shapes),
            ('not in the file, left as they were', self.missing),
            ('not in the model, ignored', self.unexpected),
        ):
            if keys:
                more = f' and {len(keys) - 8} more' if len(keys) > 8 else ''
                lines.append(f'{len(keys)} {title}: {", ".join(keys[:8])}{more}.')
        return '\n'.join(lines)


def load_weights(model: nn.Module, state_dict: Mapping[str, Any], strict: bool = False) -> LoadReport:
    """Copy every tensor that has a place of its shape in `model`; say what was not.

    Takes prefixes `module.` and `_orig_mod.`, Pytorch-UNet's keys, a bare network's keys for a Segmentor and the other
    way round. Raises UserError where no convolution or other matrix fits, where the file was made with the other
    upsampling, and with `strict` where anything is left over on either side.
    """
    model = cast(nn.Module, model.module) if is_model_wrapper(model) else model
    own = model.state_dict()
    report, fitting = LoadReport(), {}
    for given, tensor in _tensors(state_dict).items():
        key = _place(translate_key(given), own)
        if key is None:
            report.unexpected.append(given)
        elif tensor.shape != own[key].shape:
            report.skipped[key] = tuple(tensor.shape), tuple(own[key].shape)
        else:
            fitting[key] = tensor
    report.loaded = list(fitting)
    report.missing = [
        key for key in own if not (key in fitting or key in report.skipped or key.endswith('num_batches_tracked'))
    ]
    _check_upsampling(report)
    if not any(tensor.dim() > 1 for tensor in fitting.values()) or (strict and not report.complete):
        raise UserError(f'The weights do not fit the model. {report}\nIs it the config that they were trained with?')
    model.load_state_dict(fitting, strict=False)
    return report


def translate_key(key: str) -> str:
    """Without wrappers' prefixes, and Pytorch-UNet's names as UNet's. Other keys as they are."""
    key = re.sub(r'^(module\.|_orig_mod\.)+', '', key)
    for pattern, ours in PYTORCH_UNET:
        if match := pattern.match(key):
            return ours(match) + key[match.end() :]
    return key


def _tensors(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    for name in NESTED:
        if isinstance(state_dict.get(name), Mapping):
            state_dict = state_dict[name]
    return {key: value for key, value in state_dict.items() if key not in NO_WEIGHTS and isinstance(value, Tensor)}


def _place(key: str, own: Mapping[str, Tensor]) -> str | None:
    """A Segmentor's keys are its network's with 'network.' before them."""
    return next((name for name in (key, f'network.{key}', key.removeprefix('network.')) if name in own), None)


def _check_upsampling(report: LoadReport) -> None:
    """The two upsamplings share most keys, not their shapes: half a network would load."""
    learnt = re.compile(r'(network\.)?decoder\.\d+\.up\.')
    file_learns = any(learnt.match(translate_key(key)) for key in [*report.loaded, *report.skipped, *report.unexpected])
    model_learns = any(learnt.match(key) for key in [*report.loaded, *report.skipped, *report.missing])
    decodes = any('decoder.' in key for key in [*report.loaded, *report.skipped])
    if decodes and file_learns != model_learns:
        theirs, ours = ('transposed', 'bilinear') if file_learns else ('bilinear', 'transposed')
        raise UserError(
            f"The weights were made with upsample='{theirs}' (Pytorch-UNet: bilinear={not file_learns}), the model has "
            f"'{ours}'. Set model.network.upsample='{theirs}'."
        )
