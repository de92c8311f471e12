"""Processes wait for each other at the first one's port, say who is missing, and refuse who is not of their job."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from seg.engine.processes import meeting, network
from seg.engine.processes.launcher import free_port
from seg.engine.processes.meeting import Meeting, meet
from seg.errors import UserError


def arrive(*places: Meeting) -> list[Future]:
    with ThreadPoolExecutor(len(places)) as threads:
        return [threads.submit(meet, place) for place in places]


def place(number: int, count: int, port: int, limit_s: float = 20.0) -> Meeting:
    return Meeting('127.0.0.1', port, number, count, 'node', limit_s)


def test_all_go_on_when_all_are_there_in_any_order() -> None:
    port = free_port()
    assert [there.result() for there in arrive(*[place(n, 3, port) for n in (2, 1, 0)])] == ['127.0.0.1'] * 3


def test_who_is_missing_is_named_by_the_first_and_by_the_others() -> None:
    port = free_port()
    first, second = arrive(place(0, 4, port, 1.0), place(2, 4, port, 2.0))
    with pytest.raises(UserError, match=rf'node 0 of 4 waited 1 s for node 1, 3 at 127.0.0.1:{port}; start all'):
        first.result()
    with pytest.raises(UserError, match=r'node 2 of 4 waited \d s for node 0'):
        second.result()


def test_it_is_said_now_and_then(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = place(0, 2, free_port(), 1.2)
    alone.next_word_s = 0.3
    with pytest.raises(UserError):
        meet(alone)
    assert capfd.readouterr().out == f'node 0 of 2 waits for node 1 at 127.0.0.1:{alone.port}\n'


@pytest.mark.parametrize(
    ('places', 'message'),
    [
        ([(0, 2), (1, 3)], 'node 1 was started as one of 3, and node 0 as one of 2'),
        ([(0, 3), (1, 3), (1, 3)], 'there are two with number 1'),
    ],
)
def test_counts_and_numbers_that_do_not_fit_are_told_to_both(places: list, message: str) -> None:
    port = free_port()
    answers = arrive(*[place(number, count, port, 3.0) for number, count in places])
    told = [str(answer.exception()) for answer in answers if answer.exception()]
    assert sum(message in text for text in told) >= 2


def test_one_that_left_while_it_waited_is_missed_again() -> None:
    port = free_port()
    threads = ThreadPoolExecutor(3)
    first = threads.submit(meet, place(0, 3, port))
    with connected(port) as gone:
        gone.sendall(b'{"number": 1, "count": 3, "what": "node"}\n')
        time.sleep(0.3)
    rest = [threads.submit(meet, place(1, 3, port)), threads.submit(meet, place(2, 3, port))]
    assert [there.result(20) for there in (first, *rest)] == ['127.0.0.1'] * 3


def connected(port: int) -> socket.socket:
    for _ in range(100):
        try:
            return socket.create_connection(('127.0.0.1', port))
        except OSError:
            time.sleep(0.05)
    raise AssertionError('nobody listens')


def test_noise_at_the_door_is_let_go() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(meet, place(0, 2, port))
        with connected(port) as stranger:
            stranger.sendall(b'GET / HTTP/1.1\r\n\r\n')
            assert b'expected a node of a seg job' in stranger.recv(200)
        assert threads.submit(meet, place(1, 2, port)).result(20) == first.result(20)


def test_another_jobs_port_is_told_from_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, '_PAUSE_S', 0.01)
    with socket.create_server(('127.0.0.1', 0)) as door:
        threading.Thread(target=hang_up, args=(door,), daemon=True).start()
        with pytest.raises(UserError, match='is not node 0 of this job; another job may have that port'):
            meet(place(1, 2, door.getsockname()[1]))


def hang_up(door: socket.socket) -> None:
    while True:
        try:
            door.accept()[0].close()
        except OSError:
            return


def test_a_taken_port_and_a_name_that_leads_nowhere_are_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(('', 0)) as taken, pytest.raises(UserError, match='cannot be used'):
        meet(place(0, 2, taken.getsockname()[1]))
    with pytest.raises(
        UserError, match=r"'no.such.host.invalid', cannot be found .* set MASTER_ADDR to its IP address"
    ):
        meet(Meeting('no.such.host.invalid', 1, 1, 2))
    monkeypatch.setenv('MEETING_TIMEOUT', 'long')
    with pytest.raises(UserError, match="MEETING_TIMEOUT='long': expected seconds"):
        meet(Meeting('127.0.0.1', free_port(), 0, 2))


# ---- interfaces ----


def test_an_address_is_known_by_its_interface() -> None:
    assert network.interface_of('127.0.0.1') == 'lo'
    assert network.interface_of('192.0.2.250') is None
    assert network.address_towards('localhost').startswith('127.')


@pytest.mark.parametrize('address', ['10.9.8.7', 'fd00:77::1'])
def test_second_addresses_and_ipv6_too(run_in_namespace: Callable[[str, str], str], address: str) -> None:
    script = f'from seg.engine.processes.network import *; print(interface_of("{address}"))'
    assert run_in_namespace(address, script) == 'net7'


@pytest.fixture
def run_in_namespace() -> Callable[[str, str], str]:
    def run(address: str, code: str) -> str:
        width = '64' if ':' in address else '24'
        setup = (
            'ip link add name net7 type bridge && ip addr add 10.1.1.1/24 dev net7 && '
            f'ip addr add {address}/{width} dev net7 && ip link set net7 up && exec "$0" -c "$1"'
        )
        command = ['unshare', '--net', 'sh', '-c', setup, sys.executable, code]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip('needs unshare')
        if done.returncode and 'Traceback' not in done.stderr:
            pytest.skip(f'no network namespace here: {done.stderr.strip()}')
        return done.stdout.strip()

    return run


def test_the_users_own_choice_stays(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv('GLOO_SOCKET_IFNAME', 'ib0')
    network.choose_gloo_interface('127.0.0.1')
    assert os.environ['GLOO_SOCKET_IFNAME'] == 'ib0'
    monkeypatch.delenv('GLOO_SOCKET_IFNAME')
    network.choose_gloo_interface('192.0.2.250')  # not ours
    assert 'GLOO_SOCKET_IFNAME' not in os.environ
    assert 'no network interface of' in capfd.readouterr().out
    monkeypatch.setenv('GLOO_SOCKET_IFNAME', '')  # so that what comes next is undone
    monkeypatch.delenv('GLOO_SOCKET_IFNAME')
    network.choose_gloo_interface('127.0.0.1')
    assert os.environ.pop('GLOO_SOCKET_IFNAME') == 'lo'
