"""Names the image of an OCI layout for `podman load` and `docker load`: packaging/name_image.py LAYOUT NAME."""

import json
import sys
from pathlib import Path

layout, name = Path(sys.argv[1]), sys.argv[2]


def blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


index = json.loads((layout / "index.json").read_text())
[entry] = index["manifests"]
entry["annotations"] = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": f"docker.io/library/{name}"}
(layout / "index.json").write_text(json.dumps(index))
manifest = json.loads((layout / blob(entry["digest"])).read_text())
layers = [blob(layer["digest"]) for layer in manifest["layers"]]
# What Docker reads where it doesn't keep its images in containerd.
of_docker = [{"Config": blob(manifest["config"]["digest"]), "RepoTags": [name], "Layers": layers}]
(layout / "manifest.json").write_text(json.dumps(of_docker))
