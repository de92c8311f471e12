import torch
import torch.nn.functional as F

from seg.models.labels import shrink_labels
from seg.models.row_bands import row_bands


def test_labels_shrink_to_the_pixel_under_the_centre() -> None:
    row = torch.arange(10, dtype=torch.uint8)
    # centres of 4 pixels over 10: 1.25, 3.75, 6.25, 8.75
    assert shrink_labels(row[None], (1, 4)).tolist() == [[1, 3, 6, 8]]
    # of 3: 1.67, 5, 8.33. A centre on an edge takes the pixel that starts there
    assert shrink_labels(row[:, None], (3, 1)).flatten().tolist() == [1, 5, 8]
    # growing 2 to 5: 0.2, 0.6, 1.0, 1.4, 1.8
    assert shrink_labels(row[None, :2], (1, 5)).tolist() == [[0, 0, 1, 1, 1]]


def test_labels_keep_their_type_batch_and_values() -> None:
    labels = torch.randint(0, 3, (2, 37, 53), dtype=torch.uint8)
    labels[labels == 2] = 255
    small = shrink_labels(labels, (16, 19))
    assert small.shape == (2, 16, 19) and small.dtype == torch.uint8
    assert set(small.unique().tolist()) <= {0, 1, 255}
    assert torch.equal(small, F.interpolate(labels[None].double(), (16, 19), mode='nearest-exact')[0].byte())
    assert shrink_labels(labels, (37, 53)) is labels


def test_bands_are_the_bilinear_logits() -> None:
    logits = torch.randn(5, 13, 17, dtype=torch.float64)
    for size in ((64, 97), (13, 40), (29, 17), (13, 17), (7, 5), (1, 1)):
        expected = F.interpolate(logits[None], size, mode='bilinear', align_corners=False)[0]
        bands = list(row_bands(logits, size, band_values=5 * size[1] * 4))
        assert all(band.shape[1] <= 4 for band in bands)  # never the whole
        assert (torch.cat(bands, 1) - expected).abs().max() < 1e-12
        labels = torch.cat([band.argmax(0) for band in row_bands(logits.float(), size)])
        assert torch.equal(labels, F.interpolate(logits[None].float(), size, mode='bilinear')[0].argmax(0))


def test_half_precision_is_interpolated_in_float32() -> None:
    logits = torch.randn(2, 4, 4).bfloat16()
    (band,) = row_bands(logits, (8, 8))
    assert band.dtype == torch.float32
    assert torch.allclose(band, F.interpolate(logits[None].float(), (8, 8), mode='bilinear')[0], atol=1e-6)
