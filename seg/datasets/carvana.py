"""CarvanaDataset: what is special in the names of Kaggle's Carvana Image Masking Challenge."""

from collections.abc import Mapping
from typing import ClassVar

from seg.datasets.segmentation import SegmentationDataset
from seg.registry import DATASETS


@DATASETS.register_module()
class CarvanaDataset(SegmentationDataset):
    """HASH_NN.jpg with HASH_NN_mask.gif, NN the view of car HASH; a split keeps the views of a car together."""

    METAINFO: ClassVar[dict] = {'classes': ('background', 'car'), 'palette': [[0, 0, 0], [220, 20, 60]]}
    DATA_PREFIX: ClassVar[Mapping[str, str | None]] = {'img_path': 'train', 'seg_map_path': 'train_masks'}
    IMG_SUFFIX = '.jpg'
    SEG_MAP_SUFFIX = '_mask.gif'
    GROUP = r'^(.+)_[^_]+$'
    WHERE_FROM = (
        'Carvana comes from Kaggle: `kaggle competitions download -c carvana-image-masking-challenge`, then unzip '
        'train.zip and train_masks.zip, which make the folders train and train_masks, into data_root'
    )
