"""The MNIST ConvNet. `tools/dist_train.sh projects/mnist_convnet/configs/mnist_convnet.py 4`."""

_base_ = ['../../../configs/_base_/runtime.py']
custom_imports = dict(imports=[f'projects.mnist_convnet.{name}' for name in ('model', 'dataset', 'accuracy')])

model = dict(type='MnistConvNet', data_preprocessor=dict(type='DigitPreprocessor', mean=33.3, std=78.6))
digits = dict(type='MnistDataset', data_root='data/mnist')
train_dataloader = dict(batch_size=32, num_workers=2, dataset=dict(**digits, part='train'))
val_dataloader = dict(batch_size=500, num_workers=1, dataset=dict(**digits, part='t10k'))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy')
test_evaluator = val_evaluator

optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.01, momentum=0.9))
train_cfg = dict(by_epoch=True, max_epochs=10)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(checkpoint=dict(save_best='accuracy'), visualization=None)  # which draws masks
