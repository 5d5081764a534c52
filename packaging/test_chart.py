"""Lints the chart, renders it, and checks what it renders: packaging/test_chart.py CHART PROGRAM."""

import subprocess
import sys
import tempfile

import helm_python
import kubernetes_validate
import yaml

KUBERNETES = "1.33"
NATS = {"nats": ["nats://nats-0.nats:4222"], "monitors": ["http://nats-0.nats:8222"], "credentialsSecret": "nats", "caSecret": "ca"}
IMAGE = {"image": {"repository": "registry.example/lastword"}}
VALUES = {
    "one server": {},
    "a certificate and a configuration": {"tlsSecret": "tls", "config": "\n  [limits]\nhops_max = 2\n", "hosts": ["a.example"]},
    "nodes": {"cluster": {"enabled": True, **NATS}, "storage": {"className": "fast"}},
}

archive, program = sys.argv[1:]
usage = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    chart = f"{folder}/lastword"
    for name, values in VALUES.items():
        values = IMAGE | values
        linted = helm_python.lint(chart, values, strict=True, kube_version=f"v{KUBERNETES}.0")
        # An icon is wanted of charts that are listed somewhere.
        found = [one for one in linted["messages"] if "icon is recommended" not in one["error"]]
        assert not found and not linted["errors"], f"{name}: {found} {linted['errors']}"
        with helm_python.Chart.load(chart) as loaded:
            rendered = loaded.render(values, name="team", namespace="agents")
        texts = [text for file, text in rendered.items() if not file.endswith("NOTES.txt")]
        objects = [one for text in texts for one in yaml.safe_load_all(text) if one]
        for one in objects:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        [pods] = [one for one in objects if one["kind"] == "StatefulSet"]
        arguments = pods["spec"]["template"]["spec"]["containers"][0]["args"]
        unknown = [option for option in (a.split("=")[0] for a in arguments[1:]) if f"{option} " not in usage]
        assert arguments[0] == "serve" and not unknown, f"{name}: {unknown}"
        print(f"chart, {name}: {len(objects)} objects of Kubernetes {KUBERNETES}, {pods['spec']['replicas']} pods")
    try:
        with helm_python.Chart.load(chart) as loaded:
            loaded.render(IMAGE | {"cluster": {"enabled": True}}, name="team", namespace="agents")
    except helm_python.HelmRenderError as error:
        assert "names no NATS server" in str(error), error
    else:
        raise AssertionError("nodes without NATS are rendered")
