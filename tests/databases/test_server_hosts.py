"""What a node asks of its host: the same of this machine and of a host of the user's."""

from __future__ import annotations

import http.server
import signal
import sys
import threading
from pathlib import Path

import pytest
from disklab.databases.asking import Question
from disklab.databases.etcd.cluster import LOG
from disklab.databases.place import Place, ServerHost, Way
from disklab.databases.remote_host import RemoteHost
from disklab.databases.this_machine import ThisMachine
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine

HOSTS = (ThisMachine(), RemoteHost(LocalMachine("n1")))
SCRIPT = "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(60)"


@pytest.fixture(params=HOSTS, ids=["this machine", "a remote host"])
def host(request: pytest.FixtureRequest) -> ServerHost:
    found: ServerHost = request.param
    return found


def place(folder: Path) -> Place:
    for name in ("run", "logs"):
        (folder / name).mkdir()
    return Place("n1", "127.0.0.1", {"data": folder}, folder / "run", folder / "logs")


def test_files_are_written_found_and_removed(host: ServerHost, tmp_path: Path) -> None:
    conf = host.open_run_dir(tmp_path / "run")
    assert conf == tmp_path / "run/conf"
    assert host.write(conf, "open", "one\n").read_text() == "one\n"
    secret = host.write_secret(conf, "closed", "two", None)
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("two", 0o600)
    host.write(conf, "open", "again")
    assert (conf / "open").read_text() == "again"
    assert sorted(host.names(conf)) == ["closed", "open"]
    host.own_folder(tmp_path / "data", None)
    host.own_folder(tmp_path / "data", None)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert host.exists(tmp_path / "data")
    for path in (tmp_path / "data", secret, tmp_path / "nothing"):
        host.remove(path)
        assert not host.exists(path)


def test_the_page_cache_of_files_and_folders_is_counted(host: ServerHost, tmp_path: Path) -> None:
    below = tmp_path / "deep"
    below.mkdir()
    (below / "file").write_bytes(b"x" * 100_000)
    assert host.cached_bytes([tmp_path]) == (100_000, 100_000)
    assert host.cached_bytes([below / "file"]) == (100_000, 100_000)
    assert host.cached_bytes([]) == (0, 0)
    host.sync(Place("n1", "127.0.0.1", {"data": tmp_path}, tmp_path, tmp_path))
    host.drop_pages([tmp_path])
    assert host.cached_bytes([tmp_path])[0] == 100_000


def test_programs_are_looked_for_and_say_something(host: ServerHost) -> None:
    assert host.program("sh")
    assert host.program("no-such-program") is None
    assert "said" in host.said("sh", "-c", "echo said >&2")
    assert host.run(["sh", "-c", "echo $LC_ALL $OWN"], {"OWN": "1"}) == "C 1\n"
    with pytest.raises(MachineError, match=r"(?s)a check failed with.*3.*why"):
        host.run(["sh", "-c", "echo why >&2; exit 3"], name="a check")


def test_a_process_is_started_watched_and_ended(host: ServerHost, tmp_path: Path) -> None:
    process = host.process("a server", place(tmp_path), (), LOG)
    assert not process.is_running()
    process.launch([sys.executable, "-I", "-S", "-c", SCRIPT])
    assert process.is_running()
    process.check()
    process.end(signal.SIGTERM, 20.0)
    assert process.pid is None
    assert not process.is_running()
    process.launch([sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"])
    with pytest.raises(MachineError, match="ended by itself with code 3"):
        process.await_death()
    process.launch([sys.executable, "-I", "-S", "-c", "pass"])
    process.finish(30.0)
    assert process.pid is None


class Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.headers["X-Own"].encode() + b" " + body
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *told: object) -> None:
        pass


def test_a_question_is_answered_or_refused(host: ServerHost) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = Question("127.0.0.1", port, "POST", "/x", {"X-Own": "own"}, "body\n", 20.0)
        assert host.ask(asked) == (201, b"own body\n")
        server.shutdown()
    with pytest.raises(OSError, match=r"(?i)connect"):
        host.ask(asked)


def test_only_what_is_elsewhere_has_a_way_that_is_told(host: ServerHost, tmp_path: Path) -> None:
    way = Way("etcd", [(host, place(tmp_path))])
    way.let_in(["c1", "c2"])
    if host.elsewhere is None:
        assert way.notes == ()
    else:
        (note,) = way.notes
        assert note.startswith("etcd was built on n1 (127.0.0.1); the load came from c1, c2, so")
