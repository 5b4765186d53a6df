"""Who we are to the API server: tokens, certificates, credential plugins and impersonation of a kubeconfig, renewed where they can be."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infra.errors import MissingError, NumawiseError
from infra.observe.kubeconfig import Kubeconfig, file_of, inline_or_file

_PLUGIN_SECONDS = 60
_MARGIN_SECONDS = 10  # a credential that ends while a request is under way is none
_HEADER_TOKEN = "!#$&'*+-.^_`|~"  # legal in the name of a header, beside letters and digits; % escapes the rest


@dataclass(frozen=True)
class _Credential:
    """What is sent: a token or a certificate with its key (PEM), until `expires` (seconds since the epoch)."""

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    expires: float | None = None


class Credentials:
    """The user of a kubeconfig. Files are read anew for each request; a plugin runs again at its credential's end and when renew() is called."""

    def __init__(self, config: Kubeconfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._impersonation = _impersonation(config.user)
        self._read_at = 0.0
        self._last = _Credential()
        self._last = self._read()

    def headers(self) -> list[tuple[str, str]]:
        """Of one request: who we are, and as whom we act. Names can occur more than once."""
        user, credential = self._config.user, self._current()
        if credential.token:
            return [("Authorization", f"Bearer {credential.token}"), *self._impersonation]
        if user.get("username"):
            basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
            return [("Authorization", f"Basic {basic}"), *self._impersonation]
        return list(self._impersonation)

    def pair(self) -> tuple[bytes, bytes] | None:
        """The client certificate and its key, where there are both."""
        credential = self._current()
        return (credential.certificate, credential.key) if credential.certificate and credential.key else None

    def renew(self, refused: float) -> bool:
        """Runs the plugin again after the API server refused what was sent at the time `refused` (time.time()); False where nothing can be renewed."""
        if "exec" not in self._config.user or self._config.user.get("token"):
            return bool(self._config.user.get("tokenFile"))
        with self._lock:
            if self._read_at <= refused:  # another thread may have done it meanwhile
                self._last = self._read()
        return True

    def _current(self) -> _Credential:
        with self._lock:
            expires = self._last.expires
            if "exec" not in self._config.user or (expires is not None and time.time() > expires - _MARGIN_SECONDS):
                self._last = self._read()
            return self._last

    def _read(self) -> _Credential:
        self._read_at = time.time()
        user, folder = self._config.user, self._config.folder
        token = user.get("token")
        if user.get("tokenFile"):
            token = self._token_of_file(file_of(user["tokenFile"], folder)) or token
        found = _Credential(
            token=token,
            certificate=inline_or_file(user, "client-certificate", folder),
            key=inline_or_file(user, "client-key", folder),
        )
        if "exec" in user and not found.token:
            found = _exec_credential(user["exec"], self._config)
        if found.token and not (isinstance(found.token, str) and found.token.isprintable()):
            raise ValueError("the token holds characters that no HTTP header can")
        return found

    def _token_of_file(self, path: Path) -> str:
        """Tokens of service accounts are renewed on disk; while the file is being replaced the last one holds."""
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError:
            if not self._last.token:
                raise
            return self._last.token


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`as`, `as-uid`, `as-groups`, `as-user-extra` as headers."""
    name, uid = user.get("as"), user.get("as-uid")
    groups, extra = user.get("as-groups") or (), user.get("as-user-extra") or {}
    if not name and (uid or groups or extra):
        raise MissingError.one(
            "KubeconfigUnreadable",
            "connection.kubeconfig",
            "as-uid, as-groups and as-user-extra say more of a user that `as` has to name; add it",
        )
    headers = [("Impersonate-User", name)] if name else []
    headers += [("Impersonate-Uid", uid)] if uid else []
    headers += [("Impersonate-Group", group) for group in groups]
    headers += [(f"Impersonate-Extra-{quote(key, safe=_HEADER_TOKEN)}", value) for key, values in extra.items() for value in values]
    if not all(isinstance(value, str) and value.isprintable() for _, value in headers):
        raise ValueError("an impersonated name holds characters that no HTTP header can")
    return headers


def _exec_credential(plugin: Mapping[str, Any], config: Kubeconfig) -> _Credential:
    """Runs a credential plugin as kubectl does: a command with a slash starts from the kubeconfig's folder, the working directory stays ours."""
    command = [_command(plugin["command"], config.folder), *(plugin.get("args") or ())]
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(config)
    info = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
    extra = {entry["name"]: entry["value"] for entry in plugin.get("env") or ()}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PLUGIN_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        hint = plugin.get("installHint")
        raise _no_credentials(f"{command[0]} failed: {error}{f'. {hint.strip()}' if isinstance(hint, str) else ''}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_credentials(f"{command[0]} failed: {error}") from None
    if done.returncode != 0:
        raise _no_credentials(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    try:
        status = json.loads(done.stdout)["status"]
        return _Credential(
            token=status.get("token"),
            certificate=status["clientCertificateData"].encode() if status.get("clientCertificateData") else None,
            key=status["clientKeyData"].encode() if status.get("clientKeyData") else None,
            expires=_timestamp(status["expirationTimestamp"]) if status.get("expirationTimestamp") else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_credentials(f"{command[0]} failed: its answer is no ExecCredential ({type(error).__name__})") from None


def _command(name: str, folder: Path) -> str:
    return str(file_of(name, folder).absolute()) if "/" in name else name


def _cluster_info(config: Kubeconfig) -> dict[str, Any]:
    cluster = config.cluster
    authority = inline_or_file(cluster, "certificate-authority", config.folder)
    info = {
        "server": cluster.get("server"),
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": cluster.get("proxy-url"),
        "config": next(
            (e.get("extension") for e in cluster.get("extensions") or () if e.get("name") == "client.authentication.k8s.io/exec"),
            None,
        ),
    }
    return {key: value for key, value in info.items() if value}


def _timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; more digits than microseconds are cut."""
    moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    return moment.timestamp()


def _no_credentials(why: str) -> NumawiseError:
    return MissingError.one("NoCredentials", "connection.kubeconfig", f"its credential plugin {why}")
