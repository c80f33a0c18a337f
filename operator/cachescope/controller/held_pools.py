"""Pools whose spec cannot be obeyed: what they have goes on and is healed, as it was.

Rules:

- the pods' template is the one in use, their number is the one that there is;
- whatever else follows from the spec follows from that template: engines may call what its containers need, and no more;
- a field that cannot be read is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from cachescope.api.documents import parse
from cachescope.api.pools import Adapter, HuggingFace, ModelSource, ServingPool
from cachescope.core.errors import SpecError
from cachescope.kube.rest import Document
from cachescope.manifests.revisions import Revision

_FETCH: Final = "fetch-model"
_FETCH_ADAPTER: Final = "fetch-adapter-"
_IMAGE: Final = ModelSource(image_path="/")
_HUB: Final = ModelSource(hugging_face=HuggingFace(repository="not/known", revision="0" * 40))
_NO_NAME: Final = "unreadable"


def declared(document: Document) -> tuple[ServingPool | None, str]:
    """A pool, and why its spec is refused.

    Args:
        document: The pool.

    Returns:
        The pool, of a spec that cannot be read without the fields at fault, `None` when that helps nothing; and the fault, empty
        for none.
    """
    # What a newer operator says in a status is no fault of the spec.
    wanted = {name: value for name, value in document.items() if name != "status"}
    try:
        return parse(ServingPool, wanted, f"ServingPool {document['metadata']['name']}"), ""
    except SpecError as error:
        return _salvaged(wanted, error), str(error)


def held(pool: ServingPool, revision: Revision, replicas: int | None) -> ServingPool:
    """The pool from which its children are made while its spec is refused.

    Args:
        pool: The pool as declared.
        revision: The template in use.
        replicas: The number of pods that there is; `None` when there is no Deployment.
    """
    names = {str(item.get("name")) for item in revision.template["spec"].get("initContainers") or ()}
    fetched = sorted(name for name in names if name.startswith(_FETCH_ADAPTER))
    model = pool.spec.model.model_copy(update={"source": _HUB if _FETCH in names else _IMAGE})
    engine = pool.spec.engine.model_copy(update={"adapters": tuple(Adapter(name=name, source=_HUB) for name in fetched)})
    number = pool.spec.replicas if replicas is None else replicas
    return pool.model_copy(update={"spec": pool.spec.model_copy(update={"model": model, "engine": engine, "replicas": number})})


def _salvaged(document: Document, fault: SpecError) -> ServingPool | None:
    spec = document.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(fault.__cause__, ValidationError):
        return None
    wrong = {str(item["loc"][1]) for item in fault.__cause__.errors() if item["loc"][:1] == ("spec",) and len(item["loc"]) > 1}
    left = {name: value for name, value in spec.items() if name not in wrong}
    stand_in = {
        "model": {"name": _model_name(spec), "source": {"imagePath": "/"}},
        "engine": {"version": "0.0.0", "image": _NO_NAME},
    }
    try:
        return parse(ServingPool, {**document, "spec": {**stand_in, **left}}, "")
    except SpecError:
        return None


def _model_name(spec: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what a document holds
    model = spec.get("model")
    name = model.get("name") if isinstance(model, Mapping) else None
    return name if isinstance(name, str) and name else _NO_NAME
