"""Figures as data: what may be declared, and that the paper's are all there."""

from collections import defaultdict

import pytest

from mixts.bandit.experiments import Claim, all_figures, lower
from tiny_figures import panel, tiny

PAPER = {
    "Figure 2": 2,
    "Figure 3": 2,
    "Figure 4": 6,
    "Figure 5": 6,
    "Figure 6": 6,
    "Figure 7": 6,
    "Figure 8": 3,
    "Figure 9": 3,
}
CLAIMED = {
    "Appendix E.3",
    "Appendix E.4",
    "Appendix E.2",
    "Appendix E.1",
    "Theorem 1",
    "Appendix F.3",
}
OTHERS = {"Hong et al. 2022", "not in the paper"}


def test_every_figure_of_the_paper_is_there_with_all_its_panels():
    found = {figure.source: len(figure.panels) for figure in all_figures().values()}
    assert {source: found[source] for source in PAPER} == PAPER
    assert set(found) == set(PAPER) | CLAIMED | OTHERS


def test_panels_of_one_name_have_one_problem():
    """What two figures share is played once, so a name may not mean two things."""
    problems, makers = defaultdict(set), defaultdict(set)
    for figure in all_figures().values():
        for each in figure.panels:
            problems[each.name].add(repr(each.problem))
            for policy, make in each.policies.items():
                makers[each.name, policy].add(repr(make))
    assert all(len(found) == 1 for found in problems.values())
    assert all(len(found) == 1 for found in makers.values())


def test_each_against_each():
    assert lower(["a", "b"], ["c"]) == (Claim("a", "c"), Claim("b", "c"))


def test_a_claim_about_nobody():
    with pytest.raises(ValueError, match="names 'LinUCB'; expected one of its policies and bounds"):
        panel(3, claims=lower(["LinTS"], ["LinUCB"]))


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "/tmp/other", "pieces"])
def test_a_name_that_is_no_folder_of_its_own(name):
    with pytest.raises(ValueError, match="its files go to a folder of that name"):
        tiny(name=name)


def test_panels_of_one_title():
    with pytest.raises(ValueError, match="a different title for each"):
        tiny(panels=(panel(3), panel(3)))


def test_an_axis_without_values():
    with pytest.raises(ValueError, match=r"expected Panel.*value="):
        tiny(panels=(panel(3, value=1.0), panel(4)), across="actions")
