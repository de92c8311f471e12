"""DDP's order of gradients, as it is from the second step on (E14).

After its first backward DDP regroups the gradients in the order in which they came. The order in which ranks are summed
follows the groups, so a resumed run of three ranks or more would round its first step unlike the unbroken one.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seg.engine.protocol import Model


def settle(model: nn.Module) -> None:
    """One backward that is thrown away, before a checkpoint is loaded; every rank must call it.

    It changes BatchNorm's statistics and draws random numbers: load both after it.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    bare: Model = model.module
    inputs, labels = bare.example_batch()
    training = model.training
    model.train()
    for _ in range(2):  # the regrouping itself happens at the forward that follows the first backward
        losses = model(inputs, labels, bare.normalisers(labels), mode='loss')
        sum(losses.values()).backward()
    model.zero_grad(set_to_none=True)
    model.train(training)
