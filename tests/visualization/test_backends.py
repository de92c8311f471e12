"""Each logger is written to as a run does it, and read back with its own tools."""

import json
import logging
import math
import struct
import time

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from PIL import Image

from seg.visualization.visualizer import SegVisualizer

IMAGE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
CONFIG = dict(lr=0.1, label_map={11: 255}, losses=[dict(type='DiceLoss'), None])


def _log_a_run(folder, **backend):
    """What two steps, a validation and their pictures send; the backend must be alive at the end."""
    visualizer = SegVisualizer(vis_backends=[backend], save_dir=str(folder))
    visualizer.add_config(Config(CONFIG))
    for step in (1, 2):
        visualizer.add_scalars({'loss': 1 / step, 'epoch': 1, 'iter': step}, step=step)
    scores = {'val/mDice': 0.75, 'val/imDice': None, 'val/mAcc': math.nan, 'val/IoU.автомобиль (1)': 0.5, 'step': 2}
    visualizer.add_scalars(scores, step=2)
    visualizer.add_scalar('one', torch.tensor(3.0), step=2)
    visualizer.add_image('val/1_a', IMAGE, step=2)
    visualizer.add_histogram('weights/w', torch.arange(64.0), step=2)
    visualizer.close()
    assert len(visualizer._vis_backends) == 1, 'the logger was dropped'


def test_local_files_are_strict_json_and_pictures(tmp_path):
    _log_a_run(tmp_path, type='LocalVisBackend')
    text = (tmp_path / 'vis_data' / 'scalars.json').read_text(encoding='utf-8')
    lines = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f'{name} is no JSON')) for line in text.splitlines()
    ]
    assert lines == [
        {'loss': 1.0, 'epoch': 1, 'iter': 1, 'step': 1},
        {'loss': 0.5, 'epoch': 1, 'iter': 2, 'step': 2},
        {'val/mDice': 0.75, 'val/imDice': None, 'val/mAcc': None, 'val/IoU.автомобиль (1)': 0.5, 'step': 2},
        {'one': 3.0, 'step': 2},
    ]
    with Image.open(tmp_path / 'vis_data' / 'vis_image' / 'val' / '1_a_2.png') as image:
        assert np.array_equal(np.asarray(image), IMAGE)
    assert Config.fromfile(tmp_path / 'vis_data' / 'config.py').lr == 0.1


def test_tensorboard_has_scalars_pictures_and_histograms(tmp_path):
    accumulator = pytest.importorskip('tensorboard.backend.event_processing.event_accumulator')
    _log_a_run(tmp_path, type='TensorboardVisBackend')
    events = accumulator.EventAccumulator(str(tmp_path / 'vis_data'))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars('loss')] == [(1, 1.0), (2, 0.5)]
    assert events.Scalars('val/mDice')[0].value == 0.75 and math.isnan(events.Scalars('val/mAcc')[0].value)
    assert not {'step', 'val/imDice'} & set(events.Tags()['scalars'])
    picture = events.Images('val/1_a')[0]
    assert (picture.step, picture.height, picture.width) == (2, 4, 6)
    histogram = events.Histograms('weights/w')[0].histogram_value
    # 0 to 63, the sum of i is 63 * 64 / 2, of i squared 63 * 64 * 127 / 6
    assert (histogram.min, histogram.max, histogram.num) == (0, 63, 64)
    assert (histogram.sum, histogram.sum_squares) == (2016, 85344)


def _wandb_records(folder):
    """What an offline run wrote. A process of wandb's own writes, and may lag behind on a busy machine."""
    (file,) = folder.glob('wandb/offline-run-*/run-*.wandb')
    deadline = time.monotonic() + 60
    while True:
        records = _read_log(file)
        if any(record.HasField('exit') for record in records):
            return records
        assert time.monotonic() < deadline, f'{len(records)} records, and no end'
        time.sleep(0.2)


def _read_log(file):
    """A LevelDB log (blocks of 32 KiB, of pieces of records) after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole, records = file.read_bytes(), 7, b'', []
    while place + 7 <= len(data):
        length, kind = struct.unpack_from('<HB', data, place + 4)  # after the checksum
        if place + 7 + length > len(data):  # it is still being written
            break
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            records.append(wandb_internal_pb2.Record.FromString(whole))
            whole = b''
        if -place % 32768 < 7:  # no room for a header: the block ends in zeros
            place += -place % 32768
    return records


def test_wandb_works_offline(tmp_path, monkeypatch):
    pytest.importorskip('wandb')
    monkeypatch.setenv('WANDB_MODE', 'offline')
    monkeypatch.setenv('WANDB_SILENT', 'true')
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'private.py').write_text('x = 1')
    _log_a_run(tmp_path, type='WandbVisBackend', init_kwargs=dict(project='cars'))
    records = _wandb_records(tmp_path / 'vis_data')
    rows = [
        {item.key or ':'.join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField('history')
    ]
    assert [(row['step'], row['loss']) for row in rows if 'loss' in row] == [(1, 1.0), (2, 0.5)]
    scores = next(row for row in rows if 'val/mDice' in row)
    assert scores['val/mDice'] == 0.75 and scores['step'] == 2 and 'val/imDice' not in scores
    assert next(row['val/1_a:width'] for row in rows if 'val/1_a:width' in row) == 6
    assert next(row['weights/w:values'] for row in rows if 'weights/w:values' in row) == [1] * 64
    assert any(record.HasField('metric') and record.metric.glob_name == '*' for record in records)
    sent = {path.name for path in (tmp_path / 'vis_data' / 'wandb').rglob('*')}
    assert 'private.py' not in sent and not any(record.HasField('artifact') for record in records)


def _check_mlflow(client, folder):
    experiment = client.get_experiment_by_name('cars')
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == 'FINISHED' and run.info.run_name == 'first'
    assert [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, 'loss')] == [
        (1, 1.0),
        (2, 0.5),
    ]
    assert run.data.metrics['val/mDice'] == 0.75 and run.data.metrics['val/IoU.автомобиль _1_'] == 0.5
    assert run.data.params['label_map.11'] == '255' and run.data.params['losses.0.type'] == 'DiceLoss'
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {'config.py', 'run.log', 'val', 'vis_data'}
    assert [file.path for file in client.list_artifacts(run.info.run_id, 'val')] == ['val/1_a_2.png']
    assert [file.path for file in client.list_artifacts(run.info.run_id, 'vis_data')] == ['vis_data/scalars.json']


@pytest.mark.filterwarnings('ignore::DeprecationWarning:mlflow')
@pytest.mark.parametrize('store', ['folder', 'database'])
def test_mlflow_works_on_local_stores(store, tmp_path, monkeypatch):
    mlflow = pytest.importorskip('mlflow')
    backend = dict(type='MLflowVisBackend', exp_name='cars', run_name='first')
    monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / 'run'
    (run / 'vis_data').mkdir(parents=True)
    (run / 'run.log').write_text('a line')
    (run / 'vis_data' / 'scalars.json').write_text('{}')
    if store == 'folder':
        monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
        backend['tracking_uri'] = uri = (tmp_path / 'mlruns').as_uri()
    else:
        pytest.importorskip('sqlalchemy')
        uri = f'sqlite:///{run / "vis_data" / "mlflow.db"}'
    _log_a_run(run, **backend)
    _check_mlflow(mlflow.MlflowClient(uri), run)


def test_importing_mlflow_leaves_the_log_open(tmp_path, monkeypatch):
    from seg.visualization import mlflow_backend

    logger = MMLogger(name=f'log of {tmp_path}', log_file=str(tmp_path / 'run.log'))
    monkeypatch.setattr(MMLogger, 'get_current_instance', classmethod(lambda cls: logger))
    logger.info('before')
    for handler in logger.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()  # what the dictConfig of MLflow's first import does
    pytest.importorskip('mlflow')
    mlflow_backend._import_mlflow()
    logger.info('after')
    assert [line.split()[-1] for line in (tmp_path / 'run.log').read_text().splitlines()] == ['before', 'after']
