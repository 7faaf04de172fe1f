"""Starts what is measured: the fake upstream, and the proxies in front of it.

Each proxy gets one worker thread and the settings that its own manual advises for this job:
keep-alive to the upstream, no buffering of answers, no access log. The gateway runs with its
defaults: JSON validation, routing by model, and metrics are on.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import procstat

NGINX = """
worker_processes 1;
worker_rlimit_nofile 20000;
pid {dir}/nginx.pid;
error_log {dir}/nginx.err error;
events {{ worker_connections 8192; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
    uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
    tcp_nodelay on;
    keepalive_requests 100000000;
    client_max_body_size 64m;
    upstream worker {{
        server 127.0.0.1:{upstream};
        keepalive 2048;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://worker;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""

HAPROXY = """
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    option http-keep-alive
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-keep-alive 60s
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend workers
backend workers
    server worker 127.0.0.1:{upstream} pool-max-conn 2048 maxconn 8192
"""

FAILSOFT = """
listen: 127.0.0.1:{port}
log: {{ level: warning }}
services:
  bench:
    kind: chat
    tiers:
      - {{ name: gpu, url: "http://127.0.0.1:{upstream}", engine: {engine} }}
      - {{ name: cpu, url: "http://127.0.0.1:{second}", engine: {engine} }}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"{process.args[0]} does not listen on {port}")


class Process:
    """A program that listens on a port, in a process group of its own."""

    def __init__(self, name, argv, port, log):
        self.name, self.argv, self.port, self.log = name, argv, port, log
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        wait_port(self.port, self.process)
        return self

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def restart(self):
        self.stop()
        return self.start()

    def pids(self):
        return procstat.tree(self.process.pid)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Targets:
    """Makes the processes; `folder` takes their configurations and logs."""

    def __init__(self, tools, binary, folder):
        self.tools, self.binary, self.folder = Path(tools), binary, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def upstream(self, openai=False, port=None):
        port = port or free_port()
        argv = [str(self.tools / "bench-upstream"), "--port", str(port)]
        return Process("upstream", argv + ["--openai"] * openai, port, self.folder / "upstream.log")

    def nginx(self, upstream):
        path = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        if not path:
            return None
        port = free_port()
        run = self.folder / f"nginx-{port}"
        run.mkdir()
        conf = self._write(f"nginx-{port}.conf",
                           NGINX.format(dir=run, port=port, upstream=upstream))
        # Started by root, its worker would be another user and could not write into our folder.
        extra = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
        argv = [path, "-p", str(run), "-e", str(run / "start.err"), "-c", conf, "-g", extra]
        return Process("nginx", argv, port, self.folder / "nginx.log")

    def haproxy(self, upstream):
        path = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        if not path:
            return None
        port = free_port()
        conf = self._write(f"haproxy-{port}.cfg", HAPROXY.format(port=port, upstream=upstream))
        return Process("haproxy", [path, "-db", "-f", conf], port, self.folder / "haproxy.log")

    def failsoft(self, upstream, second, engine, name="failsoft"):
        if not self.binary or not os.access(self.binary, os.X_OK):
            return None
        port = free_port()
        conf = self._write(
            f"failsoft-{port}.yaml",
            FAILSOFT.format(port=port, upstream=upstream, second=second, engine=engine),
        )
        argv = [str(self.binary), "serve", "--config", conf]
        return Process(name, argv, port, self.folder / f"{name}.log")
