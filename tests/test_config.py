"""Loading, overriding, refusing, printing and storing configs."""

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seg.config import Config, from_plain, load_config, parse_options, read_config, to_plain
from seg.errors import UserError


def write(folder: Path, **files: str) -> Path:
    """One file for each name (double underscores are folders); the path of the last."""
    path = folder
    for name, text in files.items():
        path = folder / f'{name.replace("__", "/")}.py'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        base=(
            'crop_size = (64, 64)\n'
            "train_pipeline = [dict(type='Load'), dict(type='Crop', size=crop_size), dict(type='Flip', prob=0.5)]\n"
            'train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))\n'
            "model = dict(type='Segmentor', num_classes=2, network=dict(type='UNet', depth=4, base_channels=64))\n"
            'val_dataloader = None\n'
        ),
        child="_base_ = ['base.py']\nmodel = dict(network=dict(base_channels=32))\n",
    )


# ---- inheritance ----


def test_a_child_changes_only_what_it_names(pipeline: Path) -> None:
    config = read_config(pipeline)
    assert config.model == dict(type='Segmentor', num_classes=2, network=dict(type='UNet', depth=4, base_channels=32))
    assert config.train_dataloader.dataset.pipeline[1].size == (64, 64)
    assert 'crop_size' not in config  # helpers have done their work
    assert 'train_pipeline' not in config


def test_delete_drops_what_the_base_had(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        base="model = dict(type='A', network=dict(depth=4))",
        child="_base_ = 'base.py'\nmodel = dict(_delete_=True, type='B', network=dict(_delete_=True, width=1))",
    )
    assert read_config(path).model == dict(type='B', network=dict(width=1))


@pytest.mark.parametrize('text', ['model = dict(network=dict(_delete_=True))', 'model = [dict(_delete_=True)]'])
def test_delete_without_a_base_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r'c\.py:1: model\.(network|0)\._delete_: there is nothing to delete'):
        read_config(write(tmp_path, c=text))


def test_a_dict_on_a_list_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, base='model = dict(losses=[1])', c="_base_ = 'base.py'\nmodel = dict(losses=dict(type='X'))")
    with pytest.raises(UserError, match=r'c\.py:2: model\.losses\.type: .*model\.losses is \[1\], .*_delete_=True'):
        read_config(path)


def test_bases_can_be_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SEG_TEST_ROOT', '/data/cars')
    path = write(
        tmp_path,
        bases__data="root = '{{$SEG_TEST_ROOT:/nowhere}}'\nnames = dict(n=3)\n",
        child=(
            "import os.path as osp\nfrom math import floor\n_base_ = ['bases/data.py']\n"
            'def twice(x):\n    return 2 * x\n'
            'model = dict(a=_base_.names.n, b={{_base_.names.n}}, c=twice(floor(1.5)))\n'
            "work_dir = osp.join(_base_.root, '{{ fileBasenameNoExtension }}')\n"
        ),
    )
    config = read_config(path)
    assert config.model == dict(a=3, b=3, c=2)
    assert config.work_dir == '/data/cars/child'
    assert set(config) == {'model', 'work_dir'}


def test_import_os_is_no_lazy_config_and_the_config_can_be_copied(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, c="import os\nwork_dir = os.path.join('a', 'b')\n"))
    assert isinstance(config, Config)
    for twin in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert type(twin) is Config
        assert twin.work_dir == 'a/b'


def test_a_module_as_a_value_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"c\.py: model\.losses\.0 is the module 'os'"):
        read_config(write(tmp_path, c='import os\nmodel = dict(losses=[os])'))


def test_a_base_in_a_package_is_found_without_pkg_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, wheel_pkg____init__='', wheel_pkg__configs__b="model = dict(type='wheel')")
    write(tmp_path, src__dev_pkg____init__='', src__configs__sub__b="model = dict(type='checkout')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / 'src')
    assert read_config(write(tmp_path, c="_base_ = 'wheel_pkg::b.py'")).model.type == 'wheel'
    assert read_config(write(tmp_path, c="_base_ = 'dev_pkg::sub/b.py'")).model.type == 'checkout'
    with pytest.raises(UserError, match=r"no installed package 'absent_pkg'"):
        read_config(write(tmp_path, c="_base_ = 'absent_pkg::b.py'"))
    with pytest.raises(UserError, match=r"'dev_pkg::sub/bb.py' .*does not exist; did you mean .*sub/b.py"):
        read_config(write(tmp_path, c="_base_ = 'dev_pkg::sub/bb.py'"))


# ---- what is wrong with a file ----


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('model = dict(\n    a=1\n    b=2)', r'c\.py:2: invalid syntax'),
        ('model = dict()\nwork_dir = nowhere\n', r"c\.py:2: NameError: name 'nowhere' is not defined"),
        ('import not_there_at_all\n', r"c\.py:1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("_base_ = 'bse.py'", r"c\.py: _base_ 'bse.py' does not exist; did you mean .*base.py\?"),
        ("_base_ = 'nowhere/base.py'", r"'nowhere/base.py' does not exist \(there is no folder .*nowhere\)"),
        ("_base_ = 'c.py'", r'c\.py: _base_ goes in a circle, back to .*c\.py'),
        ('_base_ = [1]', r'c\.py:1: _base_ must be a file name or a list of file names'),
        ("_base_ = ['base.py', 'twin.py']", r"c\.py: two of its bases set 'model', .*base\.py and .*twin\.py"),
        ("_base_ = 'base.py'\nwork_dir = _base_.nothing", r"c\.py:2: AttributeError: .*'nothing'"),
        ("_base_ = 'base.py'\nwork_dir = {{_base_.nothing}}", r'c\.py: \{\{ _base_\.nothing \}\}: no base sets it'),
        ("work_dir = '{{$SEG_NOT_SET:}}'", r'c\.py: `SEG_NOT_SET` cannot be found'),
        ('from mmengine.config import read_base\nwith read_base():\n    from .base import *', r'c\.py:2: .*read_base'),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, base='model = dict()', twin='model = dict()')
    with pytest.raises(UserError, match=message):
        read_config(write(tmp_path, c=text))


def test_a_missing_config_names_those_that_are_called_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, configs__unet_carvana='model = dict()', configs__other='')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"config 'unet_carvna.py' does not exist; did you mean configs/unet_carvana.py"
    ):
        read_config('unet_carvna.py')
    with pytest.raises(UserError, match=r'did you mean configs/unet_carvana.py'):
        read_config('configs/unet_carvana')
    with pytest.raises(UserError, match='is a folder'):
        read_config('configs')


# ---- --cfg-options ----


def test_options_reach_one_element_of_a_list_and_leave_the_others(pipeline: Path) -> None:
    options = ['train_dataloader.dataset.pipeline.2.prob=0.3', 'model.network.act=gelu', 'model.new.deep.key=[1,(2,3)]']
    config = read_config(pipeline, options)
    steps = config.train_dataloader.dataset.pipeline
    assert steps == [dict(type='Load'), dict(type='Crop', size=(64, 64)), dict(type='Flip', prob=0.3)]
    assert config.model.network == dict(type='UNet', depth=4, base_channels=32, act='gelu')
    assert config.model.new.deep.key == [1, (2, 3)]
    assert read_config(pipeline, {'train_dataloader.dataset.pipeline.1.size.0': 8}).train_dataloader.dataset.pipeline[
        1
    ].size == (8, 64)


def test_options_can_delete_and_reach_a_number_key(tmp_path: Path) -> None:
    path = write(tmp_path, c="model = dict(network=dict(type='UNet', depth=4), label_map={11: 0})")
    config = read_config(path, ['model.network._delete_=True', 'model.network.type=Other', 'model.label_map.11=255'])
    assert config.model == dict(network=dict(type='Other'), label_map={11: 255})


def test_option_values_are_read_by_mmengines_rules() -> None:
    texts = {
        '3': 3, '3e-4': 3e-4, 'true': True, 'None': None, 'a,b': ['a', 'b'], '[1,2.5]': [1, 2.5], '(1,x)': (1, 'x'),
        '"512"': 512, 'k=v': 'k=v', '/my photos/cars': '/my photos/cars', "'quoted text'": 'quoted text', '': '',
    }  # fmt: skip
    assert {text: parse_options([f'a.b={text}'])['a.b'] for text in texts} == texts
    assert parse_options(['a=true'])['a'] is True


@pytest.mark.parametrize(
    ('option', 'message'),
    [
        ('model.num_classes.x=1', r'model\.num_classes\.x: cannot be set, because model\.num_classes is 2'),
        ('val_dataloader.batch_size=2', r'val_dataloader\.batch_size: cannot be set, because val_dataloader is None'),
        (
            'train_dataloader.dataset.pipeline.3.prob=1',
            r'pipeline\.3: train_dataloader\.dataset\.pipeline is a list of 3, whose elements are .*\.0 to .*\.2$',
        ),
        ('train_dataloader.dataset.pipeline.Flip.prob=1', r'pipeline\.Flip: .* is a list of 3'),
        ('model', 'expected key=value'),
        ('model..depth=3', 'a part of the key is empty'),
        ('model.losses=[1,(2', r"--cfg-options model\.losses=\[1,\(2: the brackets or quotes in '\[1,\(2' do not fit"),
        ('model.network.absent._delete_=True', 'nothing to delete'),
    ],
)
def test_an_option_that_means_nothing_is_refused(pipeline: Path, option: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_config(pipeline, [option])


def test_two_options_that_contradict_each_other_are_refused(pipeline: Path) -> None:
    with pytest.raises(UserError, match=r'sets both model\.network=5 and model\.network\.depth=3'):
        read_config(pipeline, ['model.network=5', 'model.network.depth=3'])


# ---- keys that nothing reads ----


def test_every_key_that_nothing_reads_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    text = 'model = dict()\ncustom_hoks = []\nautoscale_lr = dict(enable=True)\nfor _number in range(2):\n    pass\n'
    with pytest.raises(UserError) as caught:
        read_config(write(tmp_path, c=text), ['trian_cfg.max_epochs=1'])
    first, second, third = str(caught.value).splitlines()
    assert first.endswith('c.py:2: custom_hoks: nothing reads this key; did you mean custom_hooks?')
    assert second.endswith('c.py:3: autoscale_lr: nothing reads this key; did you mean auto_scale_lr?')
    assert third == '--cfg-options trian_cfg.max_epochs=1: trian_cfg: nothing reads this key; did you mean train_cfg?'


def test_helpers_are_welcome_wherever_they_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        base='used_by_child = 1\nused_in_string = 2\nused_by_index = 3\nmodel = dict()\n',
        c=(
            "_base_ = 'base.py'\nsize = 4\nsizes = [size]\nsizes.append(5)\n"
            "model = dict(a=_base_.used_by_child, b={{_base_.used_in_string}}, c=_base_['used_by_index'], d=sizes)\n"
        ),
    )
    assert read_config(path).model == dict(a=1, b=2, c=3, d=[4, 5])


def test_an_option_on_a_helper_is_refused_and_names_what_to_set(pipeline: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_config(pipeline, ['crop_size=(32,32)'])
    assert "base.py:1 has already used 'crop_size'" in str(caught.value)
    assert 'set train_dataloader.dataset.pipeline.1.size' in str(caught.value)


# ---- custom modules ----


def test_custom_modules_are_imported_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, lib__seg_custom_good='', lib__seg_custom_bad='1 / 0')
    monkeypatch.syspath_prepend(tmp_path / 'lib')
    load_config(write(tmp_path, c="custom_imports = dict(imports=['seg_custom_good'])"))
    assert 'seg_custom_good' in sys.modules
    for module, message in [
        ('seg_custom_bad', 'custom_imports: .*ZeroDivisionError'),
        ('seg_custom_absent', r"custom_imports: .*No module named 'seg_custom_absent'.*PYTHONPATH"),
    ]:
        with pytest.raises(UserError, match=message):
            load_config(write(tmp_path, c=f"custom_imports = dict(imports=['{module}'])"))
    with pytest.raises(UserError, match='custom_imports must be dict'):
        load_config(write(tmp_path, c="custom_imports = ['seg_custom_good']"))


# ---- text and plain data ----


def test_the_printed_config_loads_again_and_is_the_same(tmp_path: Path) -> None:
    text = (
        'width = 3\n'
        "model = dict(type='A', sizes=[(width, 4), (5,)], table={11: 255, (1, 2, 3): 'road', 'a b': -1.5e-8},\n"
        "    text='it\\'s \"so\"\\nhere', none=None, empty=dict(), limit=float('inf'), lost=[], on=True,\n"
        "    keyword={'class': 1}, long=[dict(name='x' * 40, other=list(range(9))) for _ in range(4)])\n"
    )
    config = read_config(write(tmp_path, c=text))
    again = read_config(write(tmp_path, printed=config.pretty_text))
    assert to_plain(again) == to_plain(config)
    assert again.model.table[1, 2, 3] == 'road'
    assert max(len(line) for line in config.pretty_text.splitlines()) <= 110
    config.dump(tmp_path / 'dumped.py')
    assert (tmp_path / 'dumped.py').read_text() == config.pretty_text


def test_plain_data_survives_a_checkpoint(tmp_path: Path) -> None:
    config = Config(
        dict(
            optim_wrapper=dict(optimizer=dict(type=torch.optim.AdamW, lr=np.float32(0.5), betas=(0.9, 0.99))),
            model=dict(palette=np.array([[1, 2]]), collate=write, path=Path('a/b'), dtype=torch.float16, ids={2, 1}),
            train_cfg=dict(table={11: 255, (1, 2): True}),
        )
    )
    plain = to_plain(config)
    assert plain == {
        'optim_wrapper': {'optimizer': {'type': 'AdamW', 'lr': 0.5, 'betas': (0.9, 0.99)}},
        'model': {
            'palette': [[1, 2]], 'collate': f'{__name__}.write', 'path': 'a/b', 'dtype': 'torch.float16', 'ids': [1, 2],
        },
        'train_cfg': {'table': {11: 255, (1, 2): True}},
    }  # fmt: skip
    assert type(plain['model']) is dict
    torch.save(plain, tmp_path / 'c.pth')
    assert torch.load(tmp_path / 'c.pth', weights_only=True) == plain
    assert from_plain(plain).train_cfg.table[11] == 255


@pytest.mark.parametrize(
    'node',
    [dict(type='os.system'), dict(type='os'), dict(a=[dict(type='mmengine.rmtree')]), dict(_scope_='evil', type='X')],
)
def test_a_stored_config_names_no_code(node: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="the checkpoint's config says model"):
        from_plain({'model': node})
    assert from_plain({'model': dict(type='UNet'), 'hooks': node}, 'model').model.type == 'UNet'


def test_a_stored_config_is_data(tmp_path: Path) -> None:
    text = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    config = from_plain({'model': text, 'custom_imports': dict(imports=['this']), '_base_': text})
    assert config.model == text
    assert 'custom_imports' not in config
    assert not (tmp_path / 'ran').exists()
    assert 'this' not in sys.modules
