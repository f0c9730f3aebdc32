"""What networking-calico needs of Python 3 that 2to3 does not see, and of this client of etcd.

The driver was last published for Python 2. `tools/install-neutron-driver.sh` has it translated by
Python's own 2to3; the rest is given here, and its files stay as 2to3 has left them.
"""

import inspect
import os
import sys
import uuid

import eventlet

eventlet.monkey_patch()


# Its configuration names its certificate authorities; these variables would take precedence.
for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    os.environ.pop(name, None)


def text(octets):
    return octets.decode() if isinstance(octets, bytes) else octets


def old_getargspec(function):
    return tuple(inspect.getfullargspec(function))[:4]


intern = sys.intern
sys.intern = lambda word: intern(text(word))
inspect.getargspec = old_getargspec
uuid.UUID.get_hex = lambda self: self.hex

import etcd3gw.utils
import etcd3gw.watch
from etcd3gw.client import Etcd3Client

decode = etcd3gw.utils._decode
for module in (Etcd3Client.__module__, "etcd3gw.utils", "etcd3gw.watch"):
    sys.modules[module]._decode = lambda octets: text(decode(octets))
# The driver does not name the path of the gateway; this etcd has no /v3alpha/.
defaults = Etcd3Client.__init__.__defaults__
Etcd3Client.__init__.__defaults__ = defaults[:-1] + ("/v3/",)
