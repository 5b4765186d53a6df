"""An inline topology as YAML that a stack file takes."""

from __future__ import annotations

import yaml

from infra.outputs.shape import InlineShape
from infra.report.shape import shape_as_json, shape_as_yaml

SHAPE = InlineShape(
    topology={
        "sku": "h100-sxm5-80gb",
        "threadsPerCore": 2,
        "numaNodes": [
            {"cpus": "0-3", "memory": "64Gi", "gpus": [0], "nics": ["mlx5_0", "0xab:1"]},
            {"cpus": "4", "memory": "64Gi"},
        ],
        "virtualMachine": True,
        "other": False,
        "looksLikeANumber": "1e5",
        "partition": "SPX/NPS1",
    },
    remarks=("distances are not known",),
)


def test_each_numa_node_is_a_line_and_what_yaml_would_misread_is_quoted() -> None:
    text = shape_as_yaml(SHAPE)
    assert text.split("\n") == [
        "# distances are not known",
        "topology:",
        "  sku: h100-sxm5-80gb",
        "  threadsPerCore: 2",
        "  numaNodes:",
        '    - {cpus: "0-3", memory: 64Gi, gpus: [0], nics: [mlx5_0, "0xab:1"]}',
        '    - {cpus: "4", memory: 64Gi}',
        "  virtualMachine: true",
        "  other: false",
        '  looksLikeANumber: "1e5"',
        '  partition: "SPX/NPS1"',
    ]
    assert yaml.safe_load(text)["topology"] == SHAPE.topology


def test_the_document_holds_the_same_with_the_remarks() -> None:
    assert shape_as_json(SHAPE) == {"topology": SHAPE.topology, "remarks": ["distances are not known"]}
