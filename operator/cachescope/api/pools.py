"""`ServingPool`: engines that serve one model behind one guard key. Field descriptions are the specification."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, ValidationInfo, field_validator, model_validator

from cachescope.api.documents import DNS_LABEL, OBJECT_NAME, Metadata, Resource, Strict
from cachescope.api.isolation import DedicatedTo, Isolation
from cachescope.api.statuses import ServingPoolStatus
from cachescope.core.adapters import MAX_NAME, MOST_ADAPTERS, NAME, RESERVED

QUANTITIES: dict[str, JsonValue] = {
    "type": "object",
    "description": "Quantities by resource name.",
    "maxProperties": 32,
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[0-9]+(\.[0-9]+)?([EPTGM]i?|Ki|k|m|[eE][+-]?[0-9]+)?$",
        "x-kubernetes-int-or-string": True,
    },
}

DEEPEST: Final = 20
"""Levels of what is passed on to a pod as it is; a pod's own schema needs half of them, and readers may recurse into the rest."""


def _shallow(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Refuse what is nested too deeply. Level by level: a recursion would be what is guarded against."""
    level = [value]
    for _ in range(DEEPEST):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return value
    raise ValueError(f"it is nested more than {DEEPEST} levels deep; a pod knows no such field")


def _parts(value: object) -> list[object]:
    found = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
    return [item for item in found if isinstance(item, dict | list)]


Shallow = AfterValidator(_shallow)
EngineName = Literal["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "TGI", "LMDeploy", "custom"]
Argument = Annotated[str, StringConstraints(max_length=4096)]
Variable = Annotated[str, StringConstraints(max_length=8192)]


class VolumeClaim(Strict):
    """Files on a PersistentVolumeClaim of the pool's namespace."""

    claim_name: str = Field(pattern=OBJECT_NAME, description="Name of the claim. It is mounted read-only.")
    path: str = Field(
        "", pattern=r"^([^/].*)?$", max_length=512, description="Folder below the claim's root, or of a model the file."
    )


class HuggingFace(Strict):
    """Files of the Hugging Face hub, fetched once by an init container and served from disk."""

    repository: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", description="`owner/name` of the repository.")
    revision: str = Field(
        pattern=r"^[0-9a-f]{40}$",
        description="The commit. A branch could change what a cached prefix stands for, so none is taken.",
    )
    cache_claim_name: str | None = Field(
        None,
        pattern=OBJECT_NAME,
        description="A PersistentVolumeClaim that keeps the files. Without it every new pod fetches them again.",
    )
    token_secret_name: str | None = Field(
        None, pattern=OBJECT_NAME, description="A Secret with the key `token`, read by the init container alone."
    )


class ModelSource(Strict):
    """Where the files of a model or an adapter come from. Exactly one field MUST be set."""

    image_path: str | None = Field(None, pattern=r"^/", max_length=512, description="Absolute path inside the engine's image.")
    persistent_volume_claim: VolumeClaim | None = None
    hugging_face: HuggingFace | None = None

    @model_validator(mode="after")
    def _one(self) -> ModelSource:
        if sum(value is not None for value in (self.image_path, self.persistent_volume_claim, self.hugging_face)) != 1:
            raise ValueError("set exactly one of imagePath, persistentVolumeClaim and huggingFace")
        return self


class Model(Strict):
    """The model that a pool serves."""

    name: str = Field(min_length=1, max_length=128, description="What clients send as `model`.")
    source: ModelSource


class Adapter(Strict):
    """A LoRA adapter that is served beside the model."""

    name: str = Field(
        pattern=NAME,
        min_length=1,
        max_length=MAX_NAME,
        description="What clients send as `model` to be served by it. MUST be no name of the pool's model or of another adapter.",
    )
    source: ModelSource = Field(description="Where the adapter's files come from. Exactly one field MUST be set.")

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name!r} is a type of a message's part, which the engine would take for the adapter; rename it")
        return name


class Engine(Strict):
    """The engine that serves it."""

    type: EngineName = Field(
        "vLLM",
        description="The engine in the image. docs/engines.md has what is known of each, and which mode follows; all but vLLM need "
        "`guard.mode: Sidecar`.",
    )
    version: str = Field(
        pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]*$",
        max_length=64,
        description="Version of the engine in the image, such as `0.32.0`. It decides whether salts are enforced: what is no "
        "release that was read, `latest` and builds from source too, is taken for one that enforces none.",
    )
    image: str = Field(min_length=1, max_length=512, description="The engine's own image; the guard is brought into it.")
    args: tuple[Argument, ...] = Field(
        (), max_length=128, description="Further arguments. Those that open a door past the guard are refused."
    )
    env: dict[str, Variable] = Field(
        {}, max_length=128, description="Further environment. Variables that open a door past the guard are refused."
    )
    adapters: tuple[Adapter, ...] = Field(
        (),
        max_length=MOST_ADAPTERS,
        description="LoRA adapters, loaded with the model and kept in memory; no others are served. A change rolls the pods.",
    )

    @model_validator(mode="after")
    def _named_apart(self) -> Engine:
        names = [adapter.name for adapter in self.adapters]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several adapters have the name {', '.join(twice)}; give each a name of its own")
        return self


class Gpus(Strict):
    """GPUs of one engine pod."""

    count: int = Field(ge=1, le=64, description="GPUs of each pod.")
    resource_name: str = Field("nvidia.com/gpu", max_length=253, description="Name of the device resource.")


class PodTemplate(Strict):
    """What the platform adds to engine pods. Nothing here reaches the container, so nothing here goes past the guard."""

    labels: dict[str, str] = Field({}, max_length=32, description="Further labels of the pods.")
    annotations: dict[str, str] = Field({}, max_length=32, description="Further annotations of the pods.")
    node_selector: dict[str, str] = Field({}, max_length=32, description="As in a pod.")
    tolerations: Annotated[tuple[dict[str, Any], ...], Shallow] = Field((), max_length=32, description="As in a pod.")
    affinity: Annotated[dict[str, Any] | None, Shallow] = Field(None, description="As in a pod.")
    priority_class_name: str | None = Field(None, pattern=OBJECT_NAME, description="As in a pod.")
    runtime_class_name: str | None = Field(None, pattern=OBJECT_NAME, description="As in a pod.")
    image_pull_secrets: tuple[str, ...] = Field((), max_length=8, description="Names of Secrets.")


class AllowedNamespaces(Strict):
    """Namespaces whose tenants may use the pool."""

    source: Literal["Same", "Selector"] = Field(
        "Same",
        alias="from",
        description="`Same`: the pool's own. `Selector`: also those whose labels match, where the pool is in the installation's "
        "namespace or in one of its `sharedPoolNamespaces`; elsewhere as `Same`.",
    )
    match_labels: dict[str, str] | None = Field(
        None,
        max_length=16,
        description="Labels of the namespace, all of them. MUST be set, and not empty, with `Selector` only.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )

    @model_validator(mode="after")
    def _selector(self) -> AllowedNamespaces:
        if (self.source == "Selector") != bool(self.match_labels):
            raise ValueError("set matchLabels, not empty, with `from: Selector` and only then")
        return self


class AllowedTenants(Strict):
    """Who may use the pool."""

    namespaces: AllowedNamespaces = AllowedNamespaces()


class Rollout(Strict):
    """How a change reaches the pods."""

    strategy: Literal["SpareFirst", "InPlace"] = Field(
        "SpareFirst",
        description="`SpareFirst`: a new pod serves before an old one goes, which needs GPUs for one more. "
        "`InPlace`: an old pod goes first; the pool is smaller meanwhile.",
    )
    guard_updates: Literal["WithNextRollout", "Now"] = Field(
        "WithNextRollout",
        description="When a new operator version reaches the pods: with the next change of this spec, or at once, by a rollout.",
    )


class Fence(Strict):
    """How long a guard's right lasts, and what follows a fence."""

    lease_seconds: int = Field(
        60,
        ge=3,
        le=600,
        description="Length of the right, and greatest age of a permit, in seconds. Short: more writes to the API.",
    )
    on_loss: Literal["Fresh", "Deny"] = Field(
        "Fresh",
        description="What a guard does whose right ended, while the API server does not answer. `Fresh`: it serves without "
        "any reuse. `Deny`: it serves nothing; revocations are then fenced as soon as its right has ended.",
    )
    fresh_seconds: int = Field(
        120,
        ge=1,
        le=600,
        description="Longest answer that is served without a right, with `Fresh`; five times that after its end nothing is served.",
    )
    cleanup: Literal["None", "Reset"] = Field(
        "None",
        description="What becomes of the cache that a fence of the whole pool made unreachable. `None`: it is evicted in its time. "
        "`Reset`: each guard also asks its engine to forget it, until the engine did or a minute has passed; a pool that is "
        "always busy may keep it. No fence waits for that, or depends on it.",
    )


class Guard(Strict):
    """Where the guards of a pool run."""

    mode: Literal["InProcess", "Sidecar"] = Field(
        "InProcess",
        description="`InProcess`: in the engine's own process, as its middleware; its image stays as it is. `Sidecar`: in a "
        "container of the same pod, for an image that cannot take the guard; the engine then listens on loopback only. A sidecar "
        "knows of its engine what it is told, confirms by its metrics, and cannot clean it up (`fence.cleanup`); the model MUST be "
        "on a volume, which both mount.",
    )
    resources: dict[str, Any] = Field(
        {},
        description="`requests` and `limits` of a sidecar, as in a pod; with `mode: Sidecar` and only then. Without it: requests "
        "of 100m and 128Mi, and a memory limit of 1Gi. It holds the bodies of all requests in flight.",
        json_schema_extra={"properties": {"requests": QUANTITIES, "limits": QUANTITIES}},
    )

    @model_validator(mode="after")
    def _of_a_sidecar(self) -> Guard:
        if self.resources and self.mode != "Sidecar":
            raise ValueError("a guard in the engine's process has the engine's resources; set guard.resources with `mode: Sidecar`")
        return self


class Sharing(Strict):
    """What is reused, and what people do after an incident."""

    stage: Literal["Observe", "Tenant", "Public"] = Field(
        "Tenant",
        description="`Observe`: nothing is reused, and gateways count what would be. `Tenant`: what scopes allow, within a tenant. "
        "`Public`: and, across tenants, what scopes of class `Public` allow.",
    )
    resume_after: str | None = Field(
        None,
        max_length=63,
        description="Id of the pool's latest incident: what it stopped (public sharing, reuse) goes on. Naming an older one "
        "changes nothing.",
    )


class ServingPoolSpec(Strict):
    """What a platform team asks of one pool."""

    model: Model
    engine: Engine
    replicas: int = Field(
        1, ge=0, le=1000, description="Engine pods. Omit it under an autoscaler, which scales this resource, never the Deployment."
    )
    resources: dict[str, Any] = Field(
        {},
        description="`requests` and `limits` of the engine container, as in a pod.",
        json_schema_extra={"properties": {"requests": QUANTITIES, "limits": QUANTITIES}},
    )
    gpus: Gpus | None = Field(None, description="GPUs of each pod; added to the resources.")
    shared_memory: str | None = Field(
        None,
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti)?$",
        description="Size limit of /dev/shm. Without it the pod's memory limits it.",
    )
    pod_template: PodTemplate = PodTemplate()
    allowed_tenants: AllowedTenants = AllowedTenants()
    rollout: Rollout = Rollout()
    sharing: Sharing = Sharing()
    fence: Fence = Fence()
    guard: Guard = Guard()
    isolation: Isolation = Isolation()
    dedicated_to: DedicatedTo | None = Field(
        None, description="The one tenant that the pool is for. The operator sets it on the pools that it makes; leave it out."
    )

    @field_validator("engine")
    @classmethod
    def _adapters_apart(cls, engine: Engine, info: ValidationInfo) -> Engine:
        model = info.data.get("model")  # absent when it is at fault itself
        if isinstance(model, Model) and model.name in {adapter.name for adapter in engine.adapters}:
            raise ValueError(f"an adapter has the model's own name, {model.name!r}; rename one of the two")
        return engine

    @property
    def sources(self) -> tuple[ModelSource, ...]:
        """Where files come from: those of the model, then those of its adapters."""
        return (self.model.source, *(adapter.source for adapter in self.engine.adapters))

    @property
    def fetches(self) -> int:
        """How many of them an init container fetches."""
        return sum(source.hugging_face is not None for source in self.sources)


class ServingPool(Resource):
    """Engines that serve one model behind one guard key."""

    KIND: ClassVar[str] = "ServingPool"
    PLURAL: ClassVar[str] = "servingpools"

    kind: Literal["ServingPool"] = "ServingPool"
    spec: ServingPoolSpec
    status: ServingPoolStatus | None = None

    @property
    def epoch_uid(self) -> str:
        """UID that the pool's epoch target is named by: of a pool of one tenant that of the pool that it was made of."""
        return self.spec.dedicated_to.pool_uid if self.spec.dedicated_to else self.uid

    @field_validator("metadata")
    @classmethod
    def _short_name(cls, metadata: Metadata) -> Metadata:
        if len(metadata.name) > 40 or not re.match(DNS_LABEL, metadata.name):
            raise ValueError("a pool name is a DNS-1035 label of at most 40 characters")
        return metadata
