"""The files of a public CI: they parse, and what they call is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
FILES = sorted(GITHUB.rglob("*.yml"))
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
#: YAML reads the key `on` as true.
ON: Any = True

OTHERS = [ROOT / ".pre-commit-config.yaml", ROOT / "docker-compose.yaml"]

each_file = pytest.mark.parametrize("file", [*FILES, *OTHERS], ids=lambda file: file.name)
each_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)


def loaded(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text())
    return found


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = loaded(workflow)["jobs"]
    return found


def commands(workflow: Path) -> list[str]:
    """Each command that a workflow runs, with every value that its matrix puts into it."""
    found = []
    for job in jobs(workflow).values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for command in (step["run"] for step in job["steps"] if "run" in step):
            values = re.findall(r"\$\{\{ matrix\.(\w+) \}\}", command)
            filled = [command]
            for name in values:
                filled = [c.replace(f"${{{{ matrix.{name} }}}}", str(v)) for c in filled for v in matrix[name]]
            found += filled
    return found


def targets_named(text: str) -> set[str]:
    return set(re.findall(r"(?:^|[\s;&|])make ([a-z-]+)", text))


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@each_file
def test_every_file_is_yaml(file: Path) -> None:
    assert isinstance(loaded(file), dict)


@pytest.mark.parametrize("file", [*FILES, ROOT / ".ci" / "run", *GITHUB.glob("*.md")], ids=lambda file: file.name)
def test_every_target_of_make_that_is_named_exists(file: Path) -> None:
    text = "\n".join(commands(file)) if file in WORKFLOWS else file.read_text().replace("`", " ")

    assert targets_named(text) <= targets()


def test_the_workflows_run_every_suite() -> None:
    """Else the test above would pass by looking at nothing."""
    named = {target for workflow in WORKFLOWS for target in targets_named("\n".join(commands(workflow)))}

    assert named == {"lint", "test-unit", "test", "test-slow", "test-cluster", "test-browser", "docs", "dist"}


@each_workflow
def test_every_script_and_page_that_is_named_exists(workflow: Path) -> None:
    text = workflow.read_text()

    named = re.findall(r"scripts/[\w./-]+|\b[A-Z]+\.md\b|\b\w+\.yml\b", text)
    assert [name for name in named if not (ROOT / name).exists() and not (workflow.parent / name).exists()] == []


@each_workflow
def test_a_workflow_may_only_read_unless_a_job_says_more_and_every_job_has_a_time_limit(workflow: Path) -> None:
    assert loaded(workflow)["permissions"] == {"contents": "read"}
    for name, job in jobs(workflow).items():
        assert job["timeout-minutes"] <= 180, name
        assert set(job.get("permissions", {})) <= {"id-token"}, name


@each_workflow
def test_every_action_has_a_version_and_a_checkout_leaves_no_token_behind(workflow: Path) -> None:
    steps = [step for job in jobs(workflow).values() for step in job["steps"]]
    for step in (step for step in steps if "uses" in step):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step["uses"])
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_pull_request_and_a_push_to_main_are_tested_and_the_rest_on_a_schedule() -> None:
    assert set(loaded(GITHUB / "workflows" / "ci.yml")[ON]) == {"push", "pull_request"}
    assert {"schedule", "workflow_dispatch"} <= set(loaded(GITHUB / "workflows" / "full.yml")[ON])
    assert loaded(GITHUB / "workflows" / "release.yml")[ON] == {"push": {"tags": ["v*"]}}


def test_every_python_that_is_declared_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]

    assert jobs(GITHUB / "workflows" / "ci.yml")["unit"]["strategy"]["matrix"]["python"] == declared


def test_what_publishes_has_no_token_and_waits_for_the_build() -> None:
    publish = jobs(GITHUB / "workflows" / "release.yml")["publish"]

    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text()


def test_a_bug_report_asks_for_the_status_and_the_versions() -> None:
    asked = {field["id"]: field for field in loaded(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")["body"] if "id" in field}

    assert "airflow-ckpt status <checkpoint> --json" in asked["status"]["attributes"]["label"]
    for name in ("status", "versions"):
        assert asked[name]["validations"] == {"required": True}


def test_the_target_of_a_workflow_that_is_gone_is_noticed() -> None:
    assert targets_named("make test && make nothing-like-that") - targets() == {"nothing-like-that"}


def test_a_commit_with_a_long_subject_is_refused_and_a_long_body_is_not() -> None:
    config = loaded(ROOT / ".pre-commit-config.yaml")
    (hook,) = [hook for repo in config["repos"] for hook in repo["hooks"] if hook.get("stages") == ["commit-msg"]]
    too_long = re.compile(hook["entry"], re.MULTILINE | re.DOTALL)

    assert "commit-msg" in config["default_install_hook_types"]
    assert (hook["language"], hook["args"]) == ("pygrep", ["--multiline"])
    assert too_long.search("s" * 73 + "\n\nbody\n")
    assert not too_long.search("s" * 72 + "\n\n" + "b" * 100 + "\n")


# --- scripts/check_release.sh ------------------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """As much of a checkout as the script looks at, ready for version 1.2.3."""
    for folder in ("scripts", "airflow_ckpt", "dist", "tests/compatibility/stored/1.2.3"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "check_release.sh", tmp_path / "scripts")
    (tmp_path / "airflow_ckpt" / "__init__.py").write_text('"""Text."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2030-01-31)\n")
    (tmp_path / "dist" / "airflow_ckpt-1.2.3-py3-none-any.whl").touch()
    (tmp_path / "dist" / "airflow_ckpt-1.2.3.tar.gz").touch()
    return tmp_path


def check(release: Path, tag: str = "v1.2.3") -> subprocess.CompletedProcess[str]:
    return subprocess.run([release / "scripts" / "check_release.sh", tag], capture_output=True, text=True, check=False)


def test_a_release_whose_parts_agree_is_let_through(release: Path) -> None:
    assert check(release).returncode == 0


def test_a_tag_of_another_version_is_refused(release: Path) -> None:
    done = check(release, "v1.2.4")

    assert done.returncode == 1
    assert "1.2.3" in done.stderr


@pytest.mark.parametrize("heading", ["## 1.2.3 (not released)", "## 1.2.30 (2030-01-31)", "## 1x2.3 (2030-01-31)"])
def test_a_version_without_a_date_in_the_changelog_is_refused(release: Path, heading: str) -> None:
    (release / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")

    done = check(release)

    assert done.returncode == 1
    assert "CHANGELOG.md" in done.stderr


def test_a_distribution_that_was_not_built_is_refused(release: Path) -> None:
    (release / "dist" / "airflow_ckpt-1.2.3.tar.gz").unlink()

    done = check(release)

    assert done.returncode == 1
    assert "make dist" in done.stderr


def test_a_version_whose_stored_state_was_not_kept_is_refused(release: Path) -> None:
    (release / "tests" / "compatibility" / "stored" / "1.2.3").rmdir()

    done = check(release)

    assert done.returncode == 1
    assert "tests.compatibility.store 1.2.3" in done.stderr
