from stemrepro.verify import compare


def row(claim, verdict, ours=0.1, low=0.05, high=0.15):
    return {"claim": claim, "verdict": verdict, "ours": ours, "ci_low": low, "ci_high": high}


def test_same_changed_new_and_gone():
    reference = [row("a", "reproduced"), row("b", "inconclusive"), row("c", "contradicted")]
    ours = [row("a", "reproduced", ours=0.125), row("b", "direction only"), row("d", "reproduced")]
    same, changed, (deviation, claim) = compare(ours, reference)
    assert same == 1
    assert changed == ["b: inconclusive -> direction only", "d: new", "c: gone"]
    assert claim == "a"
    assert abs(deviation - 0.5) < 1e-9


def test_claims_without_intervals_have_no_deviation():
    rows = [row("a", "inconclusive", low=None, high=None)]
    assert compare(rows, rows) == (1, [], (0.0, ""))
