//! etcd of Debian's package.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use calico_store::{EtcdOptions, EtcdStore, Store};
use netns_lab::Program;
use netns_lab::fabric::Fabric;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::limits::STARTED_WITHIN;

/// Path of Debian's program.
const ETCD: &str = "/usr/bin/etcd";

pub(super) fn is_installed() -> bool {
    Path::new(ETCD).is_file()
}

/// One member with its data on the lab's tmpfs: the measurements exclude the time of a disk.
pub struct Etcd {
    directory: PathBuf,
    options: EtcdOptions,
    /// A connection to it.
    pub store: Arc<dyn Store>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").finish_non_exhaustive()
    }
}

impl Etcd {
    /// Starts it in the first host of a fabric, and waits until it answers.
    pub async fn start(fabric: &mut Fabric) -> Result<Self> {
        let directories = fabric.store_directories("etcd")?;
        let directory = directories.into_iter().next().context("no host")?;
        let options = EtcdOptions::new([format!("http://{}", fabric.plan.store_address())]);
        let etcd = Self {
            directory,
            store: Arc::new(EtcdStore::connect(&options).await?),
            options,
        };
        etcd.serve(fabric)?;
        etcd.answers(fabric).await?;
        Ok(etcd)
    }

    /// Starts it, with its existing data.
    pub fn serve(&self, fabric: &mut Fabric) -> Result<()> {
        let address = fabric.plan.store_address();
        let (url, peers) = (
            format!("http://{address}"),
            format!("http://{}:2380", address.ip()),
        );
        let program = Program::new(ETCD)
            .arg("--data-dir")
            .arg(&self.directory)
            .args(["--name", "bench", "--log-level", "error"])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("bench={peers}")]);
        fabric.start_store(&[program])?;
        Ok(())
    }

    /// Waits until it answers. The health request is not one of the calls that it counts.
    pub async fn answers(&self, fabric: &mut Fabric) -> Result<()> {
        netns_lab::until(STARTED_WITHIN, "etcd answers", async || {
            fabric.check()?;
            let health = self.page(fabric, "/health").await;
            anyhow::Ok(match health {
                Ok(health) if health.contains(r#""health":"true""#) => Ok(()),
                Ok(health) => Err(health),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await?;
        Ok(())
    }

    /// Opens a separate connection.
    pub async fn connect(&self) -> Result<EtcdStore> {
        Ok(EtcdStore::connect(&self.options).await?)
    }

    /// Returns how many calls of a method it has answered since its start, by its own metrics.
    pub async fn calls(&self, fabric: &Fabric, method: &str) -> Result<f64> {
        let method = format!("grpc_method=\"{method}\"");
        self.figure(fabric, "grpc_server_handled_total", &method)
            .await
    }

    /// Returns how many octets it has sent to clients since its start, by its own metrics.
    pub async fn sent(&self, fabric: &Fabric) -> Result<f64> {
        let name = "etcd_network_client_grpc_sent_bytes_total";
        self.figure(fabric, name, "").await
    }

    /// Returns the sum of a metric over all series with this label.
    async fn figure(&self, fabric: &Fabric, name: &str, of: &str) -> Result<f64> {
        let text = self.page(fabric, "/metrics").await?;
        let rows = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(of));
        let counts = rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum())
    }

    /// Returns its page under this path, by HTTP.
    async fn page(&self, fabric: &Fabric, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(fabric.plan.store_address()).await?;
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        let asked = stream.write_all(request.as_bytes()).await;
        asked.context("asking etcd")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }
}
