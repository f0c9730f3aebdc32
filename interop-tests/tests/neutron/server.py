"""Neutron's server in one process, with the Calico driver of networking-calico.

Neutron, the driver and the client of etcd run as they were packaged. What surrounds them in a cloud
is stood in for: messages stay in this process, tables are made from Neutron's models, and nobody is
asked who is calling.
"""

import ported

from keystoneauth1 import loading
from keystonemiddleware import auth_token  # registers the section keystone_authtoken
from neutron import server, service
from neutron.conf.agent import common as agent_options
from neutron.db.migration.models import head
from neutron.server import wsgi_eventlet
from neutron_lib.db import api
from oslo_config import cfg
from sqlalchemy import orm

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
    # Without this, the first request may find tables whose relations are not configured yet.
    orm.configure_mappers()
    head.get_metadata().create_all(api.get_writer_session().get_bind())
    wsgi_eventlet.eventlet_wsgi_server()


server.boot_server(serve)
