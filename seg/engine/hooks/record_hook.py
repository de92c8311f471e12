"""What a run was made of, kept in its folder: the split as names, so that it can be used again."""

import json
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from seg.engine.state import checkpoint
from seg.registry import HOOKS


@HOOKS.register_module()
class RecordHook(Hook):
    """Writes `split.json`: the names of the training and validation images."""

    def before_train(self, runner: Any) -> None:
        if not is_main_process():
            return
        record = {'train': runner.train_dataloader.dataset.dataset}
        if runner.val_loop is not None:
            record['val'] = runner.val_dataloader.dataset.dataset
        names = {part: dataset.split_record() for part, dataset in record.items() if hasattr(dataset, 'split_record')}
        text = json.dumps(names, indent=1, ensure_ascii=False)
        checkpoint.write_text(text, Path(runner.work_dir) / 'split.json')
