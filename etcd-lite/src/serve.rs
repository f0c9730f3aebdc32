//! Serves a core over the etcd v3 API: KV, Watch, Lease, and the parts of Cluster and Maintenance
//! that tools need. One member, in memory or with a file, without authentication: meant for
//! loopback.

mod kv;
mod lease;
mod maintenance;
mod watch;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use etcd_client::proto::{
    PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer,
};
use futures_util::stream::{SelectAll, select_all};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch as signal};
use tonic::transport::Server as Transport;
use tonic::transport::server::TcpIncoming;
use tracing::info;

use crate::core::{Core, CoreConfig};
use crate::kept::{Kept, KeptError};
use crate::limits::{CLIENT_STREAMS_MAX, SHUTDOWN_MAX};
use crate::local::Local;
use calico_manifests::{ManifestError, Manifests};
use calico_store::limits::{PING_INTERVAL, PING_TIMEOUT, REQUEST_OCTETS_MAX};

/// Configuration of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeConfig {
    /// The addresses to listen on; port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// A directory of YAML resources to load, which is reloaded when it changes.
    pub manifests: Option<PathBuf>,
    /// A file that preserves the store across a restart.
    pub data: Option<PathBuf>,
}

/// Why the store cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No address was given.
    #[error("no address to listen on was given")]
    NoAddress,
    /// An address is not available for listening.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// The manifests cannot be read at the start.
    #[error(transparent)]
    Manifests(#[from] ManifestError),
    /// Random numbers are unavailable.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
    /// The file of the store is unusable.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// Serving failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A store that listens, and answers while `run` is polled.
pub struct Server {
    store: Local,
    incoming: SelectAll<TcpIncoming>,
    addresses: Vec<SocketAddr>,
    manifests: Option<Manifests>,
    failure: oneshot::Receiver<KeptError>,
}

/// Serves a store until the future completes; then ends watches and closes connections.
pub async fn run(
    config: ServeConfig,
    until: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    Server::bind(config).await?.run(until).await
}

impl Server {
    /// Opens a store and listens: with the content of its file, or empty, and with the manifests if
    /// there are any.
    pub async fn bind(config: ServeConfig) -> Result<Self, ServeError> {
        let octets = calico_store::shared::random_octets().map_err(ServeError::Random)?;
        let cluster = u64::from_le_bytes(octets) | 1; // never 0, which is no history
        let core_config = CoreConfig {
            cluster,
            ..CoreConfig::default()
        };
        let Some(data) = &config.data else {
            return Self::bind_kept(Core::new(core_config), None, config).await;
        };
        let (kept, core) = Kept::open(data, core_config)?;
        Self::bind_kept(core, Some(kept), config).await
    }

    /// Listens with a given store.
    pub async fn bind_core(core: Core, config: ServeConfig) -> Result<Self, ServeError> {
        Self::bind_kept(core, None, config).await
    }

    async fn bind_kept(
        core: Core,
        kept: Option<Kept>,
        config: ServeConfig,
    ) -> Result<Self, ServeError> {
        if config.listen.is_empty() {
            return Err(ServeError::NoAddress);
        }
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for address in config.listen {
            let failed = |source| ServeError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(TcpIncoming::from(listener).with_nodelay(Some(true)));
        }
        let (store, failure) = Local::spawn_kept(core, kept);
        let manifests = match config.manifests {
            Some(directory) => Some(Manifests::load(directory, store.clone()).await?),
            None => None,
        };
        Ok(Self {
            store,
            incoming: select_all(listeners),
            addresses,
            manifests,
            failure,
        })
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the store itself.
    pub fn store(&self) -> Local {
        self.store.clone()
    }

    /// Answers requests until the future completes; then ends watches and closes connections.
    pub async fn run(self, until: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let (stop, stopping) = signal::channel(false);
        let store = self.store.clone();
        let message_max = REQUEST_OCTETS_MAX + 512 * 1024;
        let router = Transport::builder()
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_TIMEOUT))
            .max_concurrent_streams(Some(CLIENT_STREAMS_MAX))
            .add_service(
                PbKvServer::new(kv::Kv(store.clone())).max_decoding_message_size(message_max),
            )
            .add_service(PbWatchServer::new(watch::Watches::new(
                store.clone(),
                stopping.clone(),
            )))
            .add_service(PbLeaseServer::new(lease::Leases::new(
                store.clone(),
                stopping.clone(),
            )))
            .add_service(PbClusterServer::new(maintenance::Cluster::new(
                store.clone(),
                &self.addresses,
            )))
            .add_service(PbMaintenanceServer::new(maintenance::Maintenance(store)));
        for address in &self.addresses {
            info!(%address, "the store is served");
        }
        let follow = async {
            match self.manifests {
                Some(manifests) => manifests.follow().await,
                None => std::future::pending().await,
            }
        };
        let ended = stopped(stopping);
        let served = router.serve_with_incoming_shutdown(self.incoming, ended);
        tokio::pin!(served, until, follow);
        tokio::select! {
            result = &mut served => return Ok(result?),
            () = &mut until => {}
            () = &mut follow => {}
            Ok(error) = self.failure => return Err(error.into()),
        }
        let _ = stop.send(true);
        match tokio::time::timeout(SHUTDOWN_MAX, served).await {
            Ok(result) => Ok(result?),
            // Clients that stay connected are abandoned.
            Err(_) => Ok(()),
        }
    }
}

/// Waits for the stop signal.
async fn stopped(mut stopping: signal::Receiver<bool>) {
    // An error: the sender is gone, which also means stop.
    let _ = stopping.wait_for(|stop| *stop).await;
}
