"""The files for TLS to ZooKeeper: which are accepted, what is said of others, and where daemons find a development server's."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.cluster.zookeeper import certificates
from squall.cluster.zookeeper.server import SERVER_FILE, NoServer
from squall.security.private_files import write_private
from squall.security.tls import BadCertificate
from squall.security.zookeeper_credentials import make_credentials
from squall.security.zookeeper_tls import CA, CERTIFICATE, KEY, ClientFiles, find_files, named_files, publish
from squall_cli.commands import daemon_options
from squall_cli.main import squall
from tests.certificates import Certificates, make_certificates
from topology_api.options import defaults

HERE, OTHER = "127.0.0.1:2181", "127.0.0.1:2182"


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "made")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "home")}


def settings_of(made: Certificates, **changed: object) -> dict[str, object]:
    return {CA: made.ca, CERTIFICATE: made.certificate, KEY: made.key, **changed}


# Those that the site names


def test_all_three_or_none(made: Certificates) -> None:
    assert named_files({CA: None, CERTIFICATE: None, KEY: None}) is None
    assert named_files(settings_of(made)) == ClientFiles(made.ca, made.certificate, made.key)
    for missing in (CA, CERTIFICATE, KEY):
        with pytest.raises(BadCertificate, match=rf"without {missing}: TLS to ZooKeeper needs all three"):
            named_files(settings_of(made, **{missing: None}))
    with pytest.raises(BadCertificate, match=f"{CA} without {CERTIFICATE} and {KEY}"):
        named_files({CA: made.ca})


@pytest.mark.parametrize("option", [CA, CERTIFICATE, KEY])
def test_a_file_that_is_missing_or_not_pem_is_named(made: Certificates, tmp_path: Path, option: str) -> None:
    with pytest.raises(BadCertificate, match=f"{option} {tmp_path}/none cannot be .*: No such file"):
        named_files(settings_of(made, **{option: f"{tmp_path}/none"}))
    write_private(tmp_path / "text", "no certificate")
    with pytest.raises(BadCertificate, match=f"{option} {tmp_path}/text .*PEM"):
        named_files(settings_of(made, **{option: f"{tmp_path}/text"}))


def test_a_key_of_another_certificate_is_refused(made: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other")
    with pytest.raises(
        BadCertificate, match=f"{KEY} {other.key} is not the key of {CERTIFICATE} {made.certificate}"
    ):
        named_files(settings_of(made, **{KEY: other.key}))


def test_a_key_that_others_may_read_is_refused(made: Certificates) -> None:
    os.chmod(made.key, 0o644)
    with pytest.raises(BadCertificate, match=rf"{KEY} .*users other than its owner \(mode 0644\).*chmod 600"):
        named_files(settings_of(made))


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_a_daemon_with_bad_files_does_not_start(daemon: str, made: Certificates, tmp_path: Path) -> None:
    os.chmod(made.key, 0o640)
    site = tmp_path / "squall.yaml"
    site.write_text(
        "".join(f"{name}: {path}\n" for name, path in settings_of(made, **{KEY: None}).items() if path)
    )
    arguments = [daemon, "--zookeeper", HERE, "--config", str(site), "--state", str(tmp_path / "state")]
    result = CliRunner().invoke(squall, arguments, prog_name="squall", env={"HOME": str(tmp_path)})
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        1,
        f"squall {daemon}: {CA} and {CERTIFICATE} without {KEY}: TLS to ZooKeeper needs all three",
    )
    assert not (tmp_path / "state").exists()


# Those of a development server


def test_a_server_with_tls_makes_files_that_daemons_of_its_user_find(
    made: Certificates, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    assert find_files(HERE, environ) is None
    folder = tmp_path / "zoo" / "tls"
    folder.parent.mkdir()
    first = certificates.make_certificates(folder, ["10.0.0.1", "zoo.example"])
    assert publish(first, HERE, environ)
    found = find_files("localhost:2181/chroot", environ)
    assert found is not None and found.context().get_ca_certs() == first.context().get_ca_certs() != []
    shown = Path(first.certificate).read_text()
    server = (folder / SERVER_FILE).read_text()
    assert certificates.make_certificates(folder, []) == first
    assert Path(first.certificate).read_text() == shown, "a later start keeps the daemons' certificate"
    assert (folder / SERVER_FILE).read_text() != server, (
        "and renews that of the server, for its present names"
    )
    for each in (*folder.iterdir(), *Path(found.ca).parent.iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
    assert sorted(each.name for each in folder.parent.iterdir()) == ["tls"], "nothing else is left"
    assert {each.name for each in Path(found.ca).parent.iterdir()} == {"ca.pem", "client.pem", "client.key"}
    assert find_files(f"{HERE},{OTHER}", environ) is None, "not of every server"


def test_a_server_that_is_started_without_tls_takes_the_files_away(
    made: Certificates, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    files = certificates.make_certificates(tmp_path / "tls", [])
    assert publish(files, HERE, environ) and find_files(HERE, environ) is not None
    assert not publish(None, HERE, environ)
    assert find_files(HERE, environ) is None


def test_the_servers_of_an_ensemble_have_one_authority(
    made: Certificates, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    for number, address in enumerate((HERE, OTHER)):
        (tmp_path / str(number)).mkdir()
        publish(
            certificates.make_certificates(tmp_path / str(number) / "tls", [], tmp_path / "shared"),
            address,
            environ,
        )
    assert find_files(f"{HERE},{OTHER}", environ) is not None
    publish(certificates.make_certificates(tmp_path / "alone", []), OTHER, environ)
    assert find_files(f"{HERE},{OTHER}", environ) is None, "of different servers"


def test_the_servers_of_an_ensemble_agree_even_when_they_start_at_once(
    made: Certificates, tmp_path: Path
) -> None:
    def start(name: str) -> str:
        (tmp_path / name).mkdir()
        files = certificates.make_certificates(tmp_path / name / "tls", [], tmp_path / "home" / "shared")
        return Path(files.ca).read_text()

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(start, "abc"))) == 1
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["shared"], "nothing else is left"


def test_without_openssl_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoServer, match="needs the `openssl` command to make certificates: install it"):
        certificates.make_certificates(tmp_path / "tls", [])


def test_daemons_use_the_files_of_a_server_only_with_its_credentials(
    made: Certificates, tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **environ})
    publish(certificates.make_certificates(tmp_path / "tls", []), HERE, environ)
    file, _ = make_credentials(tmp_path / "state", HERE, (), environ)
    site = defaults("daemon")
    assert daemon_options.make_store(HERE, site, False)._tls == find_files(HERE, environ) is not None
    named = {**site, "squall.zookeeper.credentials.file": str(file)}
    assert daemon_options.make_store(HERE, named, False)._tls is None
    named |= settings_of(made)
    own = daemon_options.make_store(HERE, named, False)._tls
    assert own is not None and own.ca == made.ca
