"""Ends storms of refused pods: a pod that a kubelet refuses is over for good, and its Deployment makes the next one at once, ten a second.

Every few seconds it looks at the failed pods of its stack. A node that refused several within a minute loses the label that model pods
select, so that the next pod waits instead of failing; the refused pods are deleted but for the last one of each node, which tells why. When
the node is Ready again and has all its devices, the label comes back after a delay that doubles with every storm.

Usage: python3 guard.py PLAN.json    in the cluster, with the service account of its pod. Standard library only.
"""

from __future__ import annotations

import calendar
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

REJECTED = "Pod was rejected: "  # before the reason of every pod that a kubelet refuses
STORM_PODS, STORM_SECONDS = 3, 60
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 60, 900
FORGET_SECONDS = 3600  # a node that kept quiet for so long begins anew
POLL_SECONDS = 5
PAUSED = "numawise.dev/paused"  # node annotation: JSON with since, until, storms, reason
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def refused(pod):
    """Whether a kubelet refused the pod."""
    status = pod.get("status") or {}
    return status.get("phase") == "Failed" and (status.get("message") or "").startswith(REJECTED)


def seconds_of(text):
    """A Kubernetes timestamp as Unix time."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def paused_state(node):
    """What an earlier round wrote on the node; an unreadable note counts as none."""
    try:
        state = json.loads(node["metadata"].get("annotations", {})[PAUSED])
        return {"until": float(state["until"]), "storms": int(state["storms"])}
    except (KeyError, TypeError, ValueError):
        return None


def ready(node, pool):
    """Ready, and with all the devices that the plan counts on."""
    status = node.get("status") or {}
    is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return is_ready and str((status.get("allocatable") or {}).get(pool["resource"], "0")) == str(pool["devices"])


def decide(plan, nodes, pods, now):
    """(changes by node, (namespace, name) of pods to delete, sentences), from one look at the cluster.

    A change is a `patch` of the node's metadata that pauses it, or the `labels` of the stack to be applied again.
    """
    changes, deletions, said = {}, [], []
    by_node = {}
    for pod in filter(refused, pods):
        by_node.setdefault((pod.get("spec") or {}).get("nodeName", ""), []).append(pod)
    for name, failed in sorted(by_node.items()):
        failed.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        deletions += [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in failed[:-1]]
        recent = [pod for pod in failed if now - seconds_of(pod["metadata"]["creationTimestamp"]) <= STORM_SECONDS]
        pool = plan["nodes"].get(name)
        if (
            pool is None
            or name not in nodes
            or len(recent) < STORM_PODS
            or plan["label"] not in nodes[name]["metadata"].get("labels", {})
        ):
            continue
        earlier = paused_state(nodes[name])
        storms = 1 if earlier is None or now - earlier["until"] > FORGET_SECONDS else earlier["storms"] + 1
        delay = min(FIRST_DELAY_SECONDS * 2 ** (storms - 1), LONGEST_DELAY_SECONDS)
        reason = failed[-1]["status"]["reason"]
        note = {"until": now + delay, "storms": storms, "reason": reason}
        changes[name] = {"patch": {"labels": {plan["label"]: None}, "annotations": {PAUSED: json.dumps(note, sort_keys=True)}}}
        said.append(f"{name} refused {len(recent)} pods in {STORM_SECONDS} s ({reason}): no model pod goes there for {delay} s")
    for name, pool in sorted(plan["nodes"].items()):
        node = nodes.get(name)
        state = paused_state(node) if node else None
        if node is None or state is None or name in changes or plan["label"] in node["metadata"].get("labels", {}):
            continue
        if now >= state["until"] and ready(node, pool):
            changes[name] = {"labels": pool["labels"]}
            said.append(f"{name} is Ready with {pool['devices']} {pool['resource']}: model pods may go there again")
    return changes, deletions, said


class Api:
    """The few calls that the guard makes."""

    def __init__(self, server, token, context, timeout=30):
        self._server, self._token, self._context, self._timeout = server, token, context, timeout

    def call(self, method, path, body=None, content_type="application/merge-patch+json"):
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self._token()}"}
        if body is not None:
            headers["Content-Type"] = content_type
        request = urllib.request.Request(
            self._server + path, method=method, headers=headers, data=None if body is None else json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=self._timeout, context=self._context) as answer:
            return json.load(answer)

    def failed_pods(self, namespace, stack):
        query = urllib.parse.urlencode({"fieldSelector": "status.phase=Failed", "labelSelector": f"numawise.dev/stack={stack}"})
        return self.call("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]


def run_once(plan, api, now, say):
    """One look and what follows from it. A node or pod that is gone meanwhile is no error."""
    nodes = {}
    for name in plan["nodes"]:
        try:
            nodes[name] = api.call("GET", f"/api/v1/nodes/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
    pods = [pod for namespace in plan["namespaces"] for pod in api.failed_pods(namespace, plan["stack"])]
    changes, deletions, said = decide(plan, nodes, pods, now)
    # The label first: deleting pods does not slow their Deployment down.
    for name, change in changes.items():
        path = f"/api/v1/nodes/{name}?fieldManager="
        if "patch" in change:
            # Whoever owns the label: a patch takes it off, an apply would only give up our own share.
            api.call("PATCH", path + "numawise-guard", {"metadata": change["patch"]})
        else:
            # Applied under the engine's own name: with another the next update would meet a conflict over the label.
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": change["labels"]}}
            api.call("PATCH", path + plan["fieldManager"], node, "application/apply-patch+yaml")
    for sentence in said:
        say(sentence)
    for namespace, name in deletions:
        try:
            api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
    if deletions:
        say(f"deleted {len(deletions)} refused pod{'s' if len(deletions) > 1 else ''}")


def in_cluster():
    """The API server and the account of this pod; the token is read anew for every call, since it is renewed on disk."""
    import os

    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    return Api(server, lambda: (_ACCOUNT / "token").read_text().strip(), context)


def main():
    def say(line):
        print(f"numawise guard: {line}", file=sys.stderr, flush=True)

    if len(sys.argv) != 2:
        say("usage: guard.py PLAN.json")
        return 2
    plan, api = json.loads(Path(sys.argv[1]).read_text()), in_cluster()
    say(f"watching {len(plan['nodes'])} nodes and namespaces {', '.join(plan['namespaces'])}")
    while True:
        try:
            run_once(plan, api, time.time(), say)
        except (OSError, ValueError) as error:
            say(f"the API server could not be asked: {error}")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
