"""The plan: strict both ways, every fault in one message."""

import numpy as np
import pytest

from converters.rules.assignment import Drop, Rule, assigned, dropped
from converters.rules.transforms import CONCAT_ROWS, FOLD_WEIGHT_NORM, dense, split_rows
from tests.tts_core.growth import MOST, growth
from tts_core.errors import CheckpointError

RULES = [
    Rule("layers.{}.w", "model.layers.{}.w", dense((4,), (2, 3))),
    Rule("norm", "model.norm"),
    Drop("layers.{}.inv_freq", why="recomputed from the configuration"),
]
SOURCES = {"layers.0.w": (4, 2, 3), "layers.1.w": (4, 2, 3), "norm": (4,), "layers.0.inv_freq": (2,)}
TARGETS = {"model.norm": (4,), "model.layers.0.w": (6, 4), "model.layers.1.w": (6, 4)}


def test_plan_fills_every_target_in_their_order():
    moves = assigned(RULES, SOURCES, TARGETS)
    assert [(move.sources, move.target, move.shape) for move in moves] == [
        (("norm",), "model.norm", (4,)),
        (("layers.0.w",), "model.layers.0.w", (6, 4)),
        (("layers.1.w",), "model.layers.1.w", (6, 4)),
    ]
    assert dropped(RULES, SOURCES) == {"layers.0.inv_freq": "recomputed from the configuration"}


def without(mapping, *names):
    return {name: value for name, value in mapping.items() if name not in names}


@pytest.mark.parametrize(
    ("sources", "targets", "said"),
    [
        (without(SOURCES, "norm"), TARGETS, "missing: norm"),
        (without(SOURCES, "layers.1.w"), TARGETS, "missing: layers.1.w"),
        (SOURCES | {"more": (1,)}, TARGETS, "unexpected: more"),
        (
            SOURCES | {"layers.2.w": (4, 2, 3)},
            TARGETS,
            "unexpected: layers.2.w (the model has no model.layers.2.w)",
        ),
        (SOURCES | {"layers.1.w": (4, 3, 2)}, TARGETS, "layers.1.w has shape (4, 3, 2), expected (4, 2, 3)"),
        (SOURCES | {"norm": (5,)}, TARGETS, "norm has shape (5,), which gives (5,), expected (4,)"),
        (without(SOURCES, "layers.0.inv_freq"), TARGETS, "rule without a source: layers.{}.inv_freq"),
        (without(SOURCES, "norm"), without(TARGETS, "model.norm"), "rule without a source: norm"),
        (SOURCES | {"layers.01.w": (4, 2, 3)}, TARGETS, "unexpected: layers.01.w"),
    ],
)
def test_each_fault_is_named(sources, targets, said):
    with pytest.raises(CheckpointError) as caught:
        assigned(RULES, sources, targets, what="model.pth")
    assert said in str(caught.value)
    assert str(caught.value).startswith("model.pth: ")
    assert "\n" not in str(caught.value)


def test_all_faults_stand_in_one_message():
    sources = without(SOURCES, "norm") | {"layers.0.w": (1, 2), "more": (1,)}
    with pytest.raises(CheckpointError) as caught:
        assigned(RULES, sources, TARGETS)
    assert all(
        name in str(caught.value) for name in ("missing: norm", "unexpected: more", "layers.0.w has shape")
    )


def test_a_source_claimed_twice_and_a_target_filled_twice():
    rules = [Rule("a", "x"), Rule("a", "y"), Rule("b", "x")]
    with pytest.raises(CheckpointError) as caught:
        assigned(rules, {"a": (1,), "b": (1,)}, {"x": (1,), "y": (1,)})
    assert "a claimed by 2 rules" in str(caught.value)
    assert "x from a and from b" in str(caught.value)


def test_a_source_that_is_both_moved_and_dropped():
    with pytest.raises(CheckpointError, match="a claimed by 2 rules"):
        assigned([Rule("a", "x"), Drop("a", why="no use")], {"a": (1,)}, {"x": (1,)})


CONV = [
    Rule(("{}.weight_g", "{}.weight_v"), "{}.weight", FOLD_WEIGHT_NORM, optional=True),
    Rule("{}.weight", "{}.weight", optional=True),
]


def test_one_of_several_forms_may_be_there():
    assert (
        assigned(CONV, {"0.weight_g": (3, 1), "0.weight_v": (3, 2)}, {"0.weight": (3, 2)})[0].how
        is FOLD_WEIGHT_NORM
    )
    assert assigned(CONV, {"0.weight": (3, 2)}, {"0.weight": (3, 2)})[0].sources == ("0.weight",)


def test_two_forms_or_half_of_one_are_faults():
    both = {"0.weight_g": (3, 1), "0.weight_v": (3, 2), "0.weight": (3, 2)}
    with pytest.raises(CheckpointError, match=r"filled twice: 0\.weight from"):
        assigned(CONV, both, {"0.weight": (3, 2)})
    with pytest.raises(CheckpointError, match=r"missing: 0\.weight_g$"):
        assigned(CONV, {"0.weight_v": (3, 2)}, {"0.weight": (3, 2)})


def test_fused_source_to_several_targets():
    rule = Rule("{}.qkv", ("{}.q", "{}.k", "{}.v"), split_rows(4, 2, 2))
    targets = {"0.q": (4, 5), "0.k": (2, 5), "0.v": (2, 5)}
    fused = np.arange(40).reshape(8, 5)
    moves = assigned([rule], {"0.qkv": (8, 5)}, targets)
    np.testing.assert_array_equal(np.concatenate([move.how.apply(fused) for move in moves]), fused)
    with pytest.raises(CheckpointError, match=r"0\.qkv has shape \(9, 5\), expected 8 rows"):
        assigned([rule], {"0.qkv": (9, 5)}, targets)
    with pytest.raises(CheckpointError, match=r"model has no 0\.q\), 0\.qkv \(the model has no 0\.k\)$"):
        assigned([rule], {"0.qkv": (8, 5)}, {"0.v": (2, 5)})


def test_several_sources_of_unequal_shape_do_not_make_up_for_each_other():
    rule = Rule(("a", "b"), "x", CONCAT_ROWS)
    with pytest.raises(CheckpointError, match="expected all the same"):
        assigned([rule], {"a": (1, 2), "b": (3, 2)}, {"x": (4, 2)})


@pytest.mark.parametrize("how", [CONCAT_ROWS, FOLD_WEIGHT_NORM, split_rows(1)[0], dense((1,), (1,))])
def test_scalars_in_place_of_tensors(how):
    with pytest.raises(CheckpointError, match="wrong shape: a"):
        assigned(
            [Rule(("a", "b") if how is FOLD_WEIGHT_NORM else "a", "x", how)],
            {"a": (), "b": ()},
            {"x": (1, 1)},
        )


def test_missing_tensors_take_linear_work():
    """A converted folder has a rule for each tensor: 256 layers in place of three took 8 seconds."""

    def miss(layers):
        names = [f"layers.{layer}.{part}" for layer in range(layers) for part in "abcd"]
        with pytest.raises(CheckpointError, match="missing: "):
            assigned([Rule(name, name) for name in names], {"layers.0.a": (1,)}, dict.fromkeys(names, (1,)))

    assert growth(miss, 250) < MOST


def test_long_lists_are_cut():
    with pytest.raises(CheckpointError, match="and 60 more"):
        assigned([Rule("{}", "{}", optional=True)], {}, {str(i): (1,) for i in range(100)})
