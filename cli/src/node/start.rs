//! `cambric node start`: prepares this host as a node of Kubernetes, as calico-node does.
//!
//! It writes the Node and pools, copies the programs of the CNI plugin, and maintains the plugin's
//! kubeconfig. When the daemons of this host are ready, it writes the CNI configuration and clears the
//! condition NetworkUnavailable; at its end it sets the condition again.

mod cluster;
mod cni;
mod detect;
mod files;
mod limits;
mod publish;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use calico_model::Network;
use calico_store::resources::Resources;
use calico_store::shared::replace_file;
use daemon_common::client::call;
use daemon_common::daemon::{LogFormat, Signal, Signals, init_logging};
use daemon_common::log::Logging;
use daemon_common::{Command, Reply, paths};
use kube_client::{Access, Kubeconfig, Overrides, Server, Trust, cluster_access, own_namespace};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::resources::Connection;
use cluster::Cluster;
use cni::Cni;
use detect::Method;
use limits::{RETRY_INTERVAL, STOP_TIMEOUT, TOKEN_RETRY_MAX};
use publish::Address;
use settings::{Family, Settings, Source};

/// The namespace of the service account outside a pod.
const NAMESPACE: &str = "kube-system";

/// The arguments of `cambric node start`. All other settings are variables of calico-node.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Write the Node and the pools, and exit
    #[arg(long)]
    once: bool,
    /// Write the files of Felix and the BGP client to this directory, unless they exist there
    #[arg(long, value_name = "DIR")]
    daemon_files: Option<PathBuf>,
    /// In the file of the BGP client: the directory with the passwords of peers
    #[arg(long, value_name = "DIR", requires = "daemon_files")]
    peer_passwords: Option<PathBuf>,
    /// The API server of Kubernetes; in a pod, that of its service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The file with the name of the Node for the CNI plugin
    #[arg(long, value_name = "FILE", default_value = "/var/lib/calico/nodename")]
    nodename_file: PathBuf,
    #[command(flatten)]
    places: cni::Places,
    /// The directory of the control sockets
    #[arg(long, value_name = "DIR", default_value = paths::RUN)]
    run: PathBuf,
    /// Level or directives; CAMBRIC_LOG overrides it
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: String,
    #[command(flatten)]
    connection: Connection,
}

/// Runs until a signal stops it.
pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let _log = Logging::begin().context("no thread for the log")?;
    init_logging(&args.log, LogFormat::Text)?;
    let mut signals = Signals::new().context("listening for signals")?;
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let settings = Settings::of(&variables, &host)?;
    let access = access(&args)?;
    let mut start = Start::new(args, settings, access.as_ref(), &variables).await?;
    let fields = start.cni.iter().flat_map(Cni::notes);
    for note in start.settings.notes.iter().cloned().chain(fields) {
        tracing::warn!(note, "setting without an effect");
    }
    let ended = async { while signals.next().await == Signal::Reload {} };
    tokio::select! {
        prepared = start.prepare() => prepared?,
        () = ended => return Ok(ExitCode::SUCCESS),
    }
    if start.args.once {
        return Ok(ExitCode::SUCCESS);
    }
    let ended = async { while signals.next().await == Signal::Reload {} };
    tokio::select! {
        kept = start.keep() => kept?,
        () = ended => start.end().await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the API server: that of the kubeconfig, or of the pod of this process; `None` on a host without
/// Kubernetes.
fn access(args: &Args) -> Result<Option<Access>> {
    match &args.kubeconfig {
        Some(file) => {
            let access = Kubeconfig::read(file).and_then(|read| read.access(&Overrides::default()));
            Ok(Some(access?))
        }
        None => {
            let variable = |name: &str| std::env::var(name).ok();
            let access = cluster_access(variable, Trust::default());
            access.context("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT")
        }
    }
}

struct Start {
    args: Args,
    settings: Settings,
    resources: Resources,
    cluster: Option<Cluster>,
    cni: Option<Cni>,
    /// Whether the condition was cleared, or may have been.
    is_up: bool,
}

impl Start {
    async fn new(
        args: Args,
        settings: Settings,
        access: Option<&Access>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let (mut cluster, mut ca) = (None, Vec::new());
        if let (Some(access), Some(node)) = (access, &settings.kubernetes) {
            ca = access.authority_certificates()?;
            let namespace = own_namespace().unwrap_or_else(|| NAMESPACE.to_owned());
            let server = Server::new(access.clone());
            cluster = Some(Cluster::new(server, node, &namespace, &settings.account)?);
        }
        Ok(Self {
            resources: args.connection.resources().await?,
            cni: match settings.manages_cni && !args.once {
                true => Cni::read(&args.places, variables, &settings.name, ca)?,
                false => None,
            },
            args,
            settings,
            cluster,
            is_up: false,
        })
    }

    /// Writes the Node, the pools and the file with the name.
    async fn prepare(&mut self) -> Result<()> {
        loop {
            match self.publish().await {
                Ok(()) => break,
                Err(error) if self.settings.waits => {
                    tracing::warn!(error = format!("{error:#}"), "not prepared yet; retrying");
                    sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(directory) = &self.args.daemon_files {
            files::write(
                directory,
                &self.settings.name,
                &self.args.connection.options()?,
                self.args.peer_passwords.as_deref(),
            )?;
        }
        let file = &self.args.nodename_file;
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        let name = format!("{}\n", self.settings.name);
        let fill = |mut file: &std::fs::File| std::io::Write::write_all(&mut file, name.as_bytes());
        replace_file(file, |error: std::io::Error| error, fill)
            .with_context(|| file.display().to_string())?;
        Ok(())
    }

    async fn publish(&mut self) -> Result<()> {
        let addresses = self.addresses(true).await?;
        let is_written = publish::node(&self.resources, &self.settings, addresses).await?;
        if is_written {
            tracing::info!(node = self.settings.name, ?addresses, "Node written");
        }
        if self.settings.kubernetes.is_some() {
            publish::felix(&self.resources, &self.settings.name).await?;
        }
        let missing = publish::without_pool(&self.resources).await?;
        for (ipv6, is_missing) in [false, true].into_iter().zip(missing) {
            let pool = self.settings.pools[usize::from(ipv6)].clone();
            if let Some(pool) = pool.filter(|_| is_missing) {
                let cidr = match pool.cidr {
                    Some(cidr) => cidr,
                    None => self.default_cidr(ipv6).await?,
                };
                publish::pool(&self.resources, &pool, cidr).await?;
                tracing::info!(pool = pool.name, %cidr, "pool created");
            }
        }
        Ok(())
    }

    async fn default_cidr(&mut self, ipv6: bool) -> Result<Network> {
        if let Some(cluster) = &mut self.cluster {
            let networks = cluster.pod_networks().await?.into_iter();
            let mut networks = networks.filter(|network| network.address().is_ipv6() == ipv6);
            if let Some(network) = networks.next() {
                return Ok(network);
            }
        }
        publish::default_range(&detect::interfaces()?)
    }

    /// Returns the changes of the addresses of the Node.
    async fn addresses(&mut self, is_start: bool) -> Result<[Address; 2]> {
        let mut addresses = [Address::Kept; 2];
        if !self.settings.has_addresses {
            return Ok(addresses);
        }
        for (ipv6, address) in [false, true].into_iter().zip(&mut addresses) {
            *address = self.address(ipv6, is_start).await?;
        }
        Ok(addresses)
    }

    async fn address(&mut self, ipv6: bool, is_start: bool) -> Result<Address> {
        let family = self.family(ipv6);
        let variable = if ipv6 { "IP6" } else { "IP" };
        match &family.source {
            Source::Given(network) if network.is_host() => {
                // With the mask of the interface that has it.
                let own = [network.address()];
                let found = Method::KubernetesInternalIp.choose(&detect::interfaces()?, ipv6, &own);
                return Ok(Address::Set(found.unwrap_or(*network)));
            }
            Source::Given(network) => return Ok(Address::Set(*network)),
            Source::Absent => return Ok(Address::Removed),
            Source::Stored => {
                let stored = publish::stored(&self.resources, &self.settings.name, ipv6).await?;
                if ipv6 || stored.is_some() || !is_start {
                    return Ok(Address::Kept);
                }
            }
            Source::Searched => {}
        }
        let method = self.family(ipv6).method.clone();
        let own = match &method {
            Method::CanReach(destination) => detect::toward(destination, ipv6).await?,
            Method::KubernetesInternalIp => {
                let cluster = self.cluster.as_mut();
                let cluster = cluster.with_context(|| {
                    format!("{variable}_AUTODETECTION_METHOD: kubernetes-internal-ip needs the API server \
                        and CALICO_K8S_NODE_REF")
                })?;
                cluster.internal_addresses().await?
            }
            _ => Vec::new(),
        };
        let found = method.choose(&detect::interfaces()?, ipv6, &own);
        let found = found.with_context(|| {
            format!(
                "{variable}_AUTODETECTION_METHOD: no interface of this host has such an address"
            )
        })?;
        Ok(Address::Set(found))
    }

    const fn family(&self, ipv6: bool) -> &Family {
        if ipv6 {
            &self.settings.ipv6
        } else {
            &self.settings.ipv4
        }
    }

    /// Does what is due, until the process ends.
    async fn keep(&mut self) -> Result<()> {
        if let Some(cni) = &self.cni {
            cni.copy()?;
        }
        let now = Instant::now();
        let has_token = self.cni.is_some() && self.cluster.is_some();
        let mut token_due = Some(now).filter(|_| has_token);
        let mut has_kubeconfig = !has_token;
        let mut token_retry = RETRY_INTERVAL;
        let mut ready_due = Some(now);
        let mut search_due = self.settings.interval.map(|interval| now + interval);
        let mut reported = String::new();
        loop {
            let now = Instant::now();
            if token_due.is_some_and(|due| due <= now) {
                let delay = match self.renew().await {
                    Ok(age_max) => {
                        token_retry = RETRY_INTERVAL;
                        has_kubeconfig = true;
                        age_max
                    }
                    Err(error) => {
                        tracing::warn!(error = format!("{error:#}"), "no token for the CNI plugin");
                        token_retry = (token_retry * 2).min(TOKEN_RETRY_MAX);
                        token_retry
                    }
                };
                token_due = Some(Instant::now() + delay);
            }
            if ready_due.is_some_and(|due| due <= now) {
                let missing = match has_kubeconfig {
                    true => self.missing().await,
                    false => Some("the CNI plugin has no token".to_owned()),
                };
                let missing = match missing {
                    Some(missing) => Some(missing),
                    None => self.open().await.err().map(|error| format!("{error:#}")),
                };
                ready_due = missing.as_ref().map(|_| Instant::now() + RETRY_INTERVAL);
                if let Some(missing) = missing.filter(|missing| *missing != reported) {
                    tracing::info!(reason = missing, "node not ready");
                    reported = missing;
                }
            }
            if search_due.is_some_and(|due| due <= now) {
                if let Err(error) = self.search().await {
                    tracing::warn!(error = format!("{error:#}"), "addresses not updated");
                }
                search_due = self
                    .settings
                    .interval
                    .map(|interval| Instant::now() + interval);
            }
            let next = [token_due, ready_due, search_due]
                .into_iter()
                .flatten()
                .min();
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Writes a kubeconfig with a new token. Returns the time after which it is replaced.
    async fn renew(&mut self) -> Result<Duration> {
        let (Some(cluster), Some(cni)) = (&mut self.cluster, &self.cni) else {
            return Ok(Duration::MAX);
        };
        let token = cluster.token().await?;
        cni.write_kubeconfig(&token.text)?;
        tracing::info!(
            age_max_s = token.age_max.as_secs(),
            "token of the CNI plugin written"
        );
        Ok(token.age_max)
    }

    /// Returns the first reason why the daemons of this host are not ready.
    async fn missing(&self) -> Option<String> {
        let bgp = self.settings.bgp.then_some("bgp-client");
        for daemon in std::iter::once("felix").chain(bgp) {
            let socket = paths::control_below(&self.args.run, daemon);
            let missing = match call(&socket, &Command::Readiness {}).await {
                Ok(Reply::Readiness(ready)) => ready.missing.into_iter().next(),
                Ok(_) => Some("an answer to something else".to_owned()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(missing) = missing {
                return Some(format!("{daemon}: {missing}"));
            }
        }
        None
    }

    /// Lets runtimes and the scheduler use this node.
    async fn open(&mut self) -> Result<()> {
        if let Some(cni) = &self.cni {
            cni.write_configuration()?;
            tracing::info!(path = %cni.path().display(), "CNI configuration written");
        }
        // A signal may end this function when the server has the condition, and before its answer.
        self.is_up = true;
        if let Some(cluster) = &mut self.cluster {
            let set = cluster.set_network(true).await;
            set.context("the condition NetworkUnavailable")?;
            tracing::info!("condition NetworkUnavailable is False");
        }
        Ok(())
    }

    async fn search(&mut self) -> Result<()> {
        let addresses = self.addresses(false).await?;
        if publish::node(&self.resources, &self.settings, addresses).await? {
            tracing::info!(node = self.settings.name, ?addresses, "Node written");
        }
        Ok(())
    }

    /// Sets the condition again. A server that does not answer does not prevent the end.
    async fn end(&mut self) {
        let Some(cluster) = self.cluster.as_mut().filter(|_| self.is_up) else {
            return;
        };
        match timeout(STOP_TIMEOUT, cluster.set_network(false)).await {
            Ok(Ok(())) => tracing::info!("condition NetworkUnavailable is True"),
            Ok(Err(error)) => tracing::warn!(%error, "condition NetworkUnavailable not set"),
            Err(_) => tracing::warn!("condition NetworkUnavailable not set in time"),
        }
    }
}
