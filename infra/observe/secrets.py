"""The Secrets that models name: whether they are there, with the keys that vLLM is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis
from infra.observe.model import ClusterObservation
from infra.plan.model import ClusterPlan

API_KEY, HUB_TOKEN = "api-key", "hub-token"


def given_twice(config: StackConfig, secrets: Iterable[str]) -> Iterator[Diagnosis]:
    """An error for each model that names a Secret while the stack holds `secrets` of its own."""
    held = sorted(secrets)
    for index, model in enumerate(config.models):
        if held and model.credentials is not None:
            keys = " and ".join({API_KEY: "numawise:apiKey", HUB_TOKEN: "numawise:hubToken"}[key] for key in held)
            yield Diagnosis(
                f"models[{index}].credentials",
                "CredentialsGivenTwice",
                f"names the Secret {model.credentials.existing_secret}, and the stack holds {keys} as well; take one of the two away (pulumi config rm {keys.split()[0]})",
            )


def named_secrets(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    """An error where a Secret is missing or holds neither key; a warning where it may not be read, or has no key for clients."""
    for index, model in enumerate(plan.models):
        name = model.engine.credentials_secret
        if name is None or model.namespace not in seen.namespaces:
            continue
        path, where = f"models[{index}].credentials.existingSecret", f"{name} in namespace {model.namespace}"
        if (model.namespace, name) not in seen.secrets:
            create = f"kubectl create secret generic {name} --namespace {model.namespace} --from-literal={API_KEY}=... --from-literal={HUB_TOKEN}=..."
            yield Diagnosis(path, "NoSecret", f"there is no Secret {where}; create it: {create}")
            continue
        keys = seen.secrets[model.namespace, name]
        if keys is None:
            message = f"the Secret {where} may not be read by this kubeconfig: whether it has the keys {API_KEY} and {HUB_TOKEN} is not checked"
            yield Diagnosis.warning(path, "SecretUnread", message)
        elif not {API_KEY, HUB_TOKEN} & set(keys):
            have = ", ".join(keys[:5]) or "none"
            yield Diagnosis(
                path,
                "SecretWithoutKeys",
                f"the Secret {where} has neither {API_KEY} nor {HUB_TOKEN}, its keys: {have}; name its keys so",
            )
        elif API_KEY not in keys:
            yield Diagnosis.warning(
                path, "NoApiKey", f"the Secret {where} has no key {API_KEY}: {model.name} answers whoever reaches it, without a key"
            )
