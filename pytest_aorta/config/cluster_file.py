"""The cluster file, or the `cluster` block that stands in its place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from pytest_aorta.config.fields import KeyFile, TolerantSection, refuse
from pytest_aorta.config.host_names import HostName, UserName

Transport = Literal["local", "ssh", "slurm"]


class NodeEntry(TolerantSection):
    """One node. Unknown keys are ignored with a warning."""

    vpc_ip: HostName | None = Field(
        default=None,
        description="Address that the other nodes use, of the first node as rendezvous; absent: the node's key.",
    )


def _nodes(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise refuse('an object with a key for each host, such as {"node1": {"vpc_ip": "10.0.0.11"}}')
    return value


class HeadNode(TolerantSection):
    """The head node as other tools note it; rank 0 is always the first of node_dict."""

    mgmt_ip: str | None = Field(default=None, description="Should be the first key of node_dict.")


class ClusterFile(TolerantSection):
    """The nodes, in rank order, and how they are reached. Unknown keys are ignored with a warning."""

    node_dict: Annotated[dict[HostName, NodeEntry], BeforeValidator(_nodes), Field(min_length=1)] = Field(
        description="Nodes by name; the first is the head node, rank 0."
    )
    username: UserName | None = Field(default=None, description="Login name on the nodes; required for SSH.")
    priv_key_file: KeyFile | None = Field(
        default=None, description="SSH key; absent: the keys that ssh itself would try, and those of the agent."
    )
    password: SecretStr | None = Field(default=None, description="SSH password; a key is better.")
    head_node_dict: HeadNode | None = Field(default=None, description="The head node as other tools note it.")
    transport: Literal["auto", "local", "ssh", "slurm"] = Field(
        default="auto", description="auto: slurm inside a job, local when the only node is this machine, else ssh."
    )
    known_hosts: KeyFile | None = Field(default=None, description="Known-hosts file; absent: the system's.")
    host_key_policy: Literal["reject", "accept-new"] = Field(
        default="reject", description="What an unknown host key means."
    )
