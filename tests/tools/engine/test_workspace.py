"""Where the engine works: nothing of the checkout's tracked files is written, and the user's own settings count where they should."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from infra.errors import MissingError
from tools.engine import Workspace
from tools.engine.stack_file import at_state, copy_stack_file
from tools.engine.workspace import CHECKOUT, default_state

SALT = "encryptionsalt: v1:abc=:v1:def:ghi==\n"
DOCUMENT = "config:\n  numawise:cluster:\n    connection: {kubeconfig: .state/cluster/kubeconfig, context: numawise-local}\n"


def workspace(tmp_path: Path, text: str = DOCUMENT, *, stack: str = "local") -> Workspace:
    file = tmp_path / f"Pulumi.{stack}.yaml"
    file.write_text(text)
    made = Workspace.of(stack=stack, state=tmp_path / "state", stack_file=file)
    made.prepare()
    return made


def test_a_stack_without_a_file_is_answered_with_those_that_have_one() -> None:
    with pytest.raises(MissingError, match=r"stack 'prud' has no file .*Pulumi\.prud\.yaml; write one, or use one of .*local"):
        Workspace.of(stack="prud")


def test_a_stack_of_an_organization_has_the_file_of_its_last_name(tmp_path: Path) -> None:
    made = Workspace.of(stack="acme/numawise/local", state=tmp_path)
    assert made.stack_file == CHECKOUT / "stacks" / "Pulumi.local.yaml"
    assert made.config_file.name == "Pulumi.local.yaml"
    assert not made.local


def test_the_copy_keeps_the_salt_that_the_engine_wrote_and_the_original_stays_as_it_is(tmp_path: Path) -> None:
    made = workspace(tmp_path)
    copy = copy_stack_file(made)
    copy.write_text(copy.read_text() + SALT)
    made.stack_file.write_text(DOCUMENT.replace("numawise-local", "other"))
    again = copy_stack_file(made).read_text()
    assert again.endswith(SALT)
    assert again.count("encryptionsalt") == 1
    assert "context: other" in again
    assert "encryptionsalt" not in made.stack_file.read_text()


def test_a_committed_salt_wins_over_the_copy_s(tmp_path: Path) -> None:
    made = workspace(tmp_path, SALT + DOCUMENT)
    made.config_file.write_text("encryptionsalt: v1:old\n")
    assert copy_stack_file(made).read_text() == SALT + DOCUMENT.replace(".state/", f"{tmp_path}/state/")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("kubeconfig: .state/cluster/kubeconfig", "kubeconfig: /s/cluster/kubeconfig"),
        ('kubeconfig: ".state/cluster/kubeconfig"', 'kubeconfig: "/s/cluster/kubeconfig"'),
        ("kubeconfig: /home/me/.state/cluster/kubeconfig", "kubeconfig: /home/me/.state/cluster/kubeconfig"),
        ("kubeconfig: ~/.kube/config", "kubeconfig: ~/.kube/config"),
    ],
)
def test_only_the_embedded_cluster_s_own_files_move_with_the_state_folder(text: str, result: str) -> None:
    assert at_state(text, Path("/s")) == result
    assert at_state(text, CHECKOUT / ".state") == text


def test_the_local_stack_ignores_the_user_s_own_backend_and_passphrase(tmp_path: Path) -> None:
    made = workspace(tmp_path)
    environ = {"PULUMI_BACKEND_URL": "s3://mine", "PULUMI_CONFIG_PASSPHRASE": "mine", "KUBECONFIG": "/mine", "PATH": "/usr/bin"}
    result = made.environment([Path("/cache/pulumi")], environ)
    assert result["PULUMI_BACKEND_URL"] == f"file://{tmp_path}/state/pulumi/backend"
    assert "PULUMI_CONFIG_PASSPHRASE" not in result
    assert "KUBECONFIG" not in result
    assert Path(result["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text() == "numawise"
    assert result["PATH"].split(":") == [str(CHECKOUT / ".venv" / "bin"), "/cache/pulumi", "/usr/bin"]


def test_another_stack_takes_the_user_s_own_backend_and_passphrase(tmp_path: Path) -> None:
    made = workspace(tmp_path, stack="prod")
    result = made.environment([], {"PULUMI_BACKEND_URL": "s3://mine", "PULUMI_CONFIG_PASSPHRASE": "mine"})
    assert (result["PULUMI_BACKEND_URL"], result["PULUMI_CONFIG_PASSPHRASE"]) == ("s3://mine", "mine")
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in result


def test_another_stack_without_a_passphrase_gets_a_secret_one_of_its_own(tmp_path: Path) -> None:
    made = workspace(tmp_path, stack="prod")
    file = Path(made.environment([], {})["PULUMI_CONFIG_PASSPHRASE_FILE"])
    first = file.read_text()
    assert len(first) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made.prepare()
    assert file.read_text() == first


def test_the_state_folder_can_be_elsewhere(tmp_path: Path) -> None:
    assert default_state({}) == CHECKOUT / ".state"
    assert default_state({"NUMAWISE_STATE": str(tmp_path)}) == tmp_path


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    made = workspace(tmp_path)
    blocked = Workspace(state=tmp_path / "Pulumi.local.yaml" / "below", stack="local", stack_file=made.stack_file)
    with pytest.raises(MissingError, match="cannot be written"):
        blocked.prepare()
