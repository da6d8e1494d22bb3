"""Devices of other publishers, and the page that shows each study with and without its own data."""

from __future__ import annotations

import pytest

from scripts import devices_page

STUDIES = devices_page.every_study()
SHORT = "aws-6a-io2-fio-2023"
"""A study of few cells."""


def test_a_study_is_predicted_as_the_page_says() -> None:
    study = [each for each in STUDIES if each["id"] == SHORT]
    own, apart = (list(devices_page.compared(study, apart=apart)) for apart in (False, True))
    lines = devices_page.PAGE.read_text(encoding="utf-8").splitlines()
    for row in devices_page.rows(study[0], own, apart):
        assert row in lines
    # Its own data say that a write waits no longer than for the VM.
    summary = devices_page.summaries(own)[SHORT, "iops"]
    assert summary.middle < devices_page.summaries(apart)[SHORT, "iops"].middle
    assert summary.beyond == 0


@pytest.mark.long
def test_the_page_is_what_would_be_written_now() -> None:
    both = [list(devices_page.compared(STUDIES, apart=apart)) for apart in (False, True)]
    assert devices_page.PAGE.read_text(encoding="utf-8") == devices_page.page(STUDIES, *both)


def test_each_study_names_what_was_taken_from_it() -> None:
    page = devices_page.PAGE.read_text(encoding="utf-8")
    assert len(STUDIES) == 6
    for study in STUDIES:
        assert f"## {study['id']}" in page
        for line in devices_page.bullets(devices_page.taken(study)):
            assert line in page


def test_what_is_far_off_has_its_reason_beside_it() -> None:
    page = devices_page.PAGE.read_text(encoding="utf-8")
    far = [line for line in page.splitlines() if "| **" in line]
    assert far
    for line in far:
        why = line.rstrip("| ").rpartition("| ")[2]
        assert why != devices_page.UNEXPLAINED
        assert any(why in study.get("reasons", {}).values() for study in STUDIES), line


def test_a_parameter_names_the_cells_that_it_was_taken_from() -> None:
    study = {
        "cells": [
            {"vm": "aws/a", "rw": "randread", "jobs": 1},
            {"vm": "aws/a", "rw": "randread", "jobs": 4},
            {"vm": "azure/Standard_B", "rw": "randwrite", "jobs": 1, "depth": 2},
            {"vm": "aws/a", "rw": "randwrite", "jobs": 1},
        ]
    }
    assert devices_page.numbers(study, ["a", "B"]) == " (1 to 4)"
    assert devices_page.numbers(study, ["a"]) == " (1 to 2, 4)"
    assert devices_page.numbers(study, ["a"], "read") == " (1)"
    assert devices_page.numbers(study, ["B", "c"], "write") == " (3)"
    assert not devices_page.numbers(study, ["c"])
