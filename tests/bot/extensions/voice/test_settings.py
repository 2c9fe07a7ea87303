"""The key `transcription` of settings.json: its faults, and what `check` and the doctor say of it."""

import json
import os

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.config.load import check_used, load
from bot.extensions.doctor.run import DoctorOptions, run_doctor
from bot.ports.config_error import ConfigInvalid

SETTINGS = {"model": "offline/demo", "tools": {"sandbox": "off"}}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(**settings):
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(SETTINGS | settings))
        path.chmod(0o600)
        return path

    return written


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("anthropic/claude", "anthropic does not transcribe"),
        ("offline/demo", 'no provider is called "offline"'),
        ("nobody/whisper", 'no provider is called "nobody"'),
        ("whisper-1", 'must be "provider/model"'),
    ],
)
def test_only_a_provider_that_transcribes_can_be_named_for_it(write, model, fault):
    with pytest.raises(ConfigInvalid) as caught:
        load(write(transcription={"model": model}), environ={})
    [line] = [line for line in str(caught.value).splitlines() if "transcription" in line]
    assert line.startswith("transcription.model: ")
    assert fault in line


def test_the_key_of_the_transcription_model_has_to_be_there(write):
    settings = load(write(transcription={"model": "openai/whisper-1"}), environ={}).settings
    [fault] = check_used(settings, {}, transports=False)
    assert fault.startswith("providers.openai.api_key: env:OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("provider", "environ", "found"),
    [
        ({}, {}, "providers.openai.api_key: env:OPENAI_API_KEY"),
        ({"openai": {"kind": "openai", "api_key": None}}, {}, "providers.openai.api_key: openai needs a key"),
        ({}, {"OPENAI_API_KEY": "sk-test"}, ""),
    ],
)
def test_a_transcription_model_without_a_key_or_a_price_is_told(write, capsys, provider, environ, found):
    path = write(transcription={"model": "openai/own-ears"}, providers=provider)
    options = DoctorOptions(path, as_json=True, offline=True)
    code = run_doctor(options, {"PATH": os.environ["PATH"], **environ})
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    finding = checks["transcription"]
    assert (code, finding["state"]) == ((1, "fail") if found else (0, "ok"))
    assert finding["found"].startswith(
        f"openai/own-ears: {found}" if found else "openai/own-ears has its key"
    )
    assert bool(finding["fix"]) == bool(found)
    refused = CliRunner().invoke(main, ["check", "--settings", str(path)], env=environ)
    assert refused.exit_code == (78 if found else 0)
    assert found in refused.output
    assert checks["transcription.price"]["meaning"] == "A hard budget refuses it."
    assert "transcription.usd_per_minute: the price is not known: a hard budget refuses it" in refused.output
