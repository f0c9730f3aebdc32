"""Calico's DHCP agent, calico-dhcp-agent of networking-calico, on a host of the lab.

It runs as root: what it does with privilege, it does in this process, without a helper beside it.
"""

import ported

from neutron import privileged
from neutron.agent.dhcp import agent
from neutron.agent.linux import ip_lib
from networking_calico.agent import dhcp_agent

for context in (privileged.default, privileged.dhcp_release_cmd, privileged.link_cmd):
    context.set_client_mode(False)

# The agent changes the cache while it iterates over this.
agent.NetworkCache.get_network_ids = lambda self: list(self.cache)


def add_pair(self, name):
    link, other = self.add_veth(name, name.replace("ns-", "dh-"))
    other.link.set_up()
    return link


# A link for the addresses of gateways. Not every kernel has dummies; a pair will do.
ip_lib.IPWrapper.add_dummy = add_pair

dhcp_agent.main()
