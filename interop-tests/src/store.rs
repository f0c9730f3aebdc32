//! The datastore of a lab, and helpers that write into it.

use std::net::{IpAddr, SocketAddr};

use calico_store::{Revision, Store as _};
use etcd_lite::Local;
use etcd_lite::serve::{ServeConfig, Server};
use tokio::sync::oneshot;

use crate::Site;

/// Returns the address on which the datastore of a lab listens.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Site::v4(254)), 2379)
}

/// A ClusterInformation with `datastoreReady`.
pub const READY: &str = r#"{"spec":{"clusterGUID":"lab","datastoreReady":true}}"#;

/// A datastore that is served until it is dropped.
#[derive(Debug)]
pub struct Store {
    core: Local,
    _until: oneshot::Sender<()>,
}

impl Store {
    pub(crate) async fn serve() -> Self {
        let config = ServeConfig {
            listen: vec![address()],
            ..ServeConfig::default()
        };
        let server = Server::bind(config).await.expect("an address to listen on");
        let core = server.store();
        let (until, stop) = oneshot::channel();
        tokio::spawn(async move {
            let stop = async {
                let _ = stop.await;
            };
            server.run(stop).await.expect("the store is served");
        });
        let store = Self {
            core,
            _until: until,
        };
        store.put("clusterinformations", "default", READY).await;
        // The pools of the tests' routes.
        for (name, cidr) in [("pool-v4", "10.65.0.0/16"), ("pool-v6", "fd65::/64")] {
            let text = format!(r#"{{"spec":{{"cidr":"{cidr}"}}}}"#);
            store.put("ippools", name, &text).await;
        }
        store
    }

    /// Assigns a block of addresses to the host of this number.
    ///
    /// # Panics
    /// If the write fails.
    pub async fn block(&self, number: u8, block: &str) {
        let block = block.replace('/', "-");
        let key = format!("/calico/ipam/v2/host/h{number}/ipv4/block/{block}");
        self.write(&key, r#"{"state":"confirmed"}"#).await;
    }

    /// Writes a resource: `plural` and `name` as in its key, `text` its JSON.
    ///
    /// # Panics
    /// If the write fails.
    pub async fn put(&self, plural: &str, name: &str, text: &str) {
        let key = format!("{}{plural}/{name}", calico_model::RESOURCES_PREFIX);
        self.write(&key, text).await;
    }

    /// Returns the revision at which a resource was last written.
    ///
    /// # Panics
    /// If it is missing.
    pub async fn written(&self, plural: &str, name: &str) -> Revision {
        let key = format!("{}{plural}/{name}", calico_model::RESOURCES_PREFIX);
        let item = self.core.get(key.into()).await.expect("an answer");
        item.expect("it is there").mod_revision
    }

    /// Writes a key.
    ///
    /// # Panics
    /// If the write fails.
    pub async fn write(&self, key: &str, text: &str) {
        let (key, value) = (key.to_owned().into(), text.to_owned().into());
        let done = self.core.put(key, value, calico_store::LeaseId::default());
        done.await.expect("written");
    }

    /// Deletes a resource.
    ///
    /// # Panics
    /// If it is missing.
    pub async fn delete(&self, plural: &str, name: &str) {
        self.remove(&format!(
            "{}{plural}/{name}",
            calico_model::RESOURCES_PREFIX
        ))
        .await;
    }

    /// Deletes a key.
    ///
    /// # Panics
    /// If it is missing.
    pub async fn remove(&self, key: &str) {
        let key = key.to_owned();
        assert!(self.core.delete(key.into()).await.expect("an answer"));
    }

    /// Writes the Node of host `number`, with its addresses and further fields of its `bgp`
    /// section.
    ///
    /// # Panics
    /// If the write fails.
    pub async fn node(&self, number: u8, more: &str) {
        let (v4, v6) = (Site::v4(number), Site::v6(number));
        let name = format!("h{number}");
        let text = format!(
            r#"{{"kind":"Node","metadata":{{"name":"{name}","labels":{{"number":"{number}"}}}},
                "spec":{{"bgp":{{"ipv4Address":"{v4}/24","ipv6Address":"{v6}/64"{more}}}}}}}"#
        );
        self.put("nodes", &name, &text).await;
    }
}
