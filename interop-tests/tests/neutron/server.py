"""Neutron's server in one process, with the Calico driver of networking-calico.

Neutron, the driver and the client of etcd run as they were packaged. What surrounds them in a cloud
is stood in for: messages stay in this process, tables are made from Neutron's models, and nobody is
asked who is calling. The driver was last published for Python 2: what it uses of that, Python 3 is
given here, and its own files stay as they are.
"""

import builtins
import collections
import inspect
import sys
import types
import uuid

import eventlet

eventlet.monkey_patch()


def text(octets):
    return octets.decode() if isinstance(octets, bytes) else octets


def old_getargspec(function):
    return tuple(inspect.getfullargspec(function))[:4]


class OldDict(dict):
    iteritems = dict.items


class OldDefaultDict(collections.defaultdict):
    iteritems = dict.items


builtins.intern = lambda word: sys.intern(text(word))
builtins.basestring = str
inspect.getargspec = old_getargspec
uuid.UUID.get_hex = lambda self: self.hex

import etcd3gw.utils
import etcd3gw.watch
from etcd3gw.client import Etcd3Client

decode = etcd3gw.utils._decode
for module in (Etcd3Client.__module__, "etcd3gw.utils", "etcd3gw.watch"):
    sys.modules[module]._decode = lambda octets: text(decode(octets))
# The driver does not say which path of the gateway it wants; this etcd has no /v3alpha/.
defaults = Etcd3Client.__init__.__defaults__
Etcd3Client.__init__.__defaults__ = defaults[:-1] + ("/v3/",)

from keystoneauth1 import loading
from keystonemiddleware import auth_token  # registers the section keystone_authtoken
from networking_calico.plugins.ml2.drivers.calico import endpoints, policy, status, subnets
from neutron import server, service
from neutron.conf.agent import common as agent_options
from neutron.db.migration.models import head
from neutron.server import wsgi_eventlet
from neutron_lib.db import api
from oslo_config import cfg


def with_old_dicts(syncer):
    read = syncer.get_all_from_neutron
    syncer.get_all_from_neutron = lambda self, context: OldDict(read(self, context))


for syncer in (
    endpoints.WorkloadEndpointSyncer,
    policy.PolicySyncer,
    subnets.SubnetSyncer,
):
    with_old_dicts(syncer)
status.collections = types.SimpleNamespace(defaultdict=OldDefaultDict)

loading.register_auth_conf_options(cfg.CONF, "keystone_authtoken")
cfg.CONF.register_opts(
    loading.get_auth_plugin_conf_options("password"), "keystone_authtoken"
)
agent_options.register_agent_state_opts_helper(cfg.CONF)


def in_this_process(started):
    def workers():
        found = started()
        for worker in found:
            worker._worker_process_count = 0
        return found

    return workers


service._get_plugins_workers = in_this_process(service._get_plugins_workers)
service._get_rpc_workers = in_this_process(service._get_rpc_workers)


def serve():
    head.get_metadata().create_all(api.get_writer_session().get_bind())
    wsgi_eventlet.eventlet_wsgi_server()


server.boot_server(serve)
