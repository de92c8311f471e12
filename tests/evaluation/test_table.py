from seg.evaluation.table import score_table

REPORT = dict(
    aAcc=0.995, mIoU=0.5, mDice=0.66666, mAcc=1.0, imDice=None, imIoU=0.25,
    per_class={
        'background': dict(IoU=0.5, Dice=0.66666, Acc=1.0, Precision=0.5),
        'car': dict(IoU=None, Dice=None, Acc=None, Precision=None),
    },
)  # fmt: skip


def test_the_table_reads_as_it_should():
    assert score_table(REPORT).splitlines() == [
        '+------------+-------+-------+--------+-----------+',
        '| class      |   IoU |  Dice |    Acc | Precision |',
        '+------------+-------+-------+--------+-----------+',
        '| background | 50.00 | 66.67 | 100.00 |     50.00 |',
        '| car        |   n/a |   n/a |    n/a |       n/a |',
        '+------------+-------+-------+--------+-----------+',
        'aAcc 99.50  mIoU 50.00  mDice 66.67  mAcc 100.00  imDice n/a  imIoU 25.00',
    ]


def test_names_of_any_script_align():
    scores = REPORT['per_class']['background']
    lines = score_table(
        {**REPORT, 'per_class': {'автомобиль': scores, '汽车': scores, 'cafe\u0301': scores}}
    ).splitlines()
    assert lines[3].startswith('| автомобиль | ')
    assert lines[4].startswith('| 汽车       | ')  # two letters, four columns, so six spaces to make ten
    assert lines[5].startswith('| cafe\u0301       | ')  # five code points, four columns
