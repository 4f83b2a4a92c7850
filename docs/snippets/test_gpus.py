"""Tests of the GPUs that a program takes, for machines without GPUs."""

import launchpad as lp
import pytest


@pytest.fixture(autouse=True)
def eight_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("LP_FAKE_GPUS", "8")
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def make_program(actors):
    program = lp.Program("train")
    with program.group("learner", resources=lp.Resources(gpus=4)):
        program.add_node(lp.PyNode(print))
    with program.group("actor", resources=lp.Resources(gpus=0.25)):
        program.add_node(lp.PyNode(print), replicas=actors)
    return program


def test_sixteen_actors_fit_beside_the_learner():
    plan = lp.plan(make_program(actors=16), "test_mp")

    assert plan.worker("learner-0").gpus == ("0", "1", "2", "3")
    assert plan.worker("actor-15").gpus == ("7",)


def test_one_more_does_not():
    with pytest.raises(lp.DefinitionError, match=r"actor 17×0.25 GPU = 8.25, this host has 8"):
        lp.plan(make_program(actors=17), "test_mp")
