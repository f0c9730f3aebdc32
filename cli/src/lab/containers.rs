//! The role of the container runtime: connects workloads to their nodes through the CNI plugin.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use netns_lab::fabric::{Fabric, Place, Workload};
use netns_lab::{Host, Program, within};
use serde_json::{Value, json};

use super::limits::{CONNECT, CONNECT_SECONDS};
use super::programs;

/// The network that every workload is in; its members reach each other.
const NETWORK: &str = "lab";
/// The interface's name in a workload.
const INTERFACE: &str = "eth0";

/// The CNI plugin, and its settings for this fabric.
#[derive(Debug)]
pub(super) struct Containers {
    plugin: PathBuf,
    endpoints: String,
}

impl Containers {
    pub(super) fn of(fabric: &Fabric) -> Result<Self> {
        Ok(Self {
            plugin: programs::cni()?,
            endpoints: fabric.plan.store_urls().join(","),
        })
    }

    /// Connects a workload to a node, with these addresses or with automatic ones.
    pub(super) async fn add(
        &self,
        fabric: &Fabric,
        name: &str,
        place: Place,
        wanted: &[IpAddr],
    ) -> Result<(Ipv4Addr, Ipv6Addr)> {
        let result = self.call("ADD", fabric, name, place, wanted).await?;
        let (mut v4, mut v6) = (None, None);
        for ip in result["ips"].as_array().into_iter().flatten() {
            let text = ip["address"].as_str().unwrap_or_default();
            match text.split('/').next().unwrap_or_default().parse() {
                Ok(IpAddr::V4(address)) => v4 = Some(address),
                Ok(IpAddr::V6(address)) => v6 = Some(address),
                Err(_) => bail!("the CNI plugin's result has the address \"{text}\""),
            }
        }
        v4.zip(v6)
            .with_context(|| format!("the CNI plugin has not given two addresses: {result}"))
    }

    /// Disconnects a workload from its node.
    pub(super) async fn del(&self, fabric: &Fabric, name: &str) -> Result<()> {
        let place = workload(fabric, name)?.place;
        self.call("DEL", fabric, name, place, &[]).await?;
        Ok(())
    }

    async fn call(
        &self,
        command: &str,
        fabric: &Fabric,
        name: &str,
        place: Place,
        wanted: &[IpAddr],
    ) -> Result<Value> {
        let node = &fabric.node(place)?.host;
        let config = self.save(node, name, wanted)?;
        let directory = self.plugin.parent().unwrap_or(&self.plugin);
        let program = Program::new("/bin/sh")
            .args(["-c", "exec \"$0\" <\"$1\""])
            .arg(&self.plugin)
            .arg(config)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", name)
            .env("CNI_NETNS", workload(fabric, name)?.netns())
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", directory);
        let what = format!("{command} of {name} at {}", node.name());
        let (status, output) = within(CONNECT, &what, node.output(&program)).await??;
        let text = String::from_utf8_lossy(&output);
        if !status.success() {
            bail!("{what}: {}", text.trim());
        }
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("{what}: the plugin's result"))
    }

    /// Writes the network's configuration for a workload, and returns its path.
    fn save(&self, node: &Host, name: &str, wanted: &[IpAddr]) -> Result<PathBuf> {
        let mut config = json!({
            "cniVersion": "1.0.0", "name": NETWORK, "type": "cambric-cni",
            "etcd_endpoints": self.endpoints, "nodename": node.name(),
            "endpoint_status_dir": "/run/cambric/endpoint-status",
            "policy_setup_timeout_seconds": CONNECT_SECONDS,
            "ipam": {"type": "cambric-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
        });
        if !wanted.is_empty() {
            config["runtimeConfig"] = json!({"ips": wanted});
        }
        let path = node.directory().join(format!("{name}.cni.json"));
        std::fs::write(&path, config.to_string())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// Returns a workload by its name.
pub(super) fn workload<'a>(fabric: &'a Fabric, name: &str) -> Result<&'a Workload> {
    let found = fabric.workloads.iter().find(|w| w.name == name);
    found.with_context(|| format!("there is no workload {name}"))
}
