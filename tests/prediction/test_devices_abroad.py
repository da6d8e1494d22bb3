"""Devices of other publishers, and the page that shows each study with and without its own data."""

from __future__ import annotations

import pytest
import yaml

from scripts import devices_page

STUDIES = yaml.safe_load(devices_page.STUDIES.read_text(encoding="utf-8"))["studies"]
SHORT = "aws-6a-io2-fio-2023"
"""A study of few cells."""


def test_a_study_is_predicted_as_the_page_says() -> None:
    study = [each for each in STUDIES if each["id"] == SHORT]
    own, apart = (list(devices_page.compared(study, apart=apart)) for apart in (False, True))
    lines = devices_page.PAGE.read_text(encoding="utf-8").splitlines()
    for row in devices_page.rows(SHORT, own, apart):
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
    for study in STUDIES:
        assert f"## {study['id']}" in page
        for line in devices_page.bullets(devices_page.taken(study["evidence"])):
            assert line in page
