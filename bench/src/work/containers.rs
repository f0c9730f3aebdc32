//! cni: from a runtime's ADD to the plugin's result, compared with the reference plugin `ptp`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use calico_store::resources::Resources;
use netns_lab::fabric::Machine;
use netns_lab::{Host, Lab, Program};
use serde_json::{Value, json};

use crate::fabric::{self, Ground};
use crate::stage::{Measures, Options, quantiles};

/// The reference plugins of Debian.
const REFERENCE: &str = "/usr/lib/cni";

/// Connects and disconnects containers one after the other, each once with `ptp` and once with
/// Cambric's plugin, which answers when Felix has programmed the endpoint in the kernel; `ptp`
/// waits for no agent, and host-local stores its addresses in files.
pub(super) fn containers(options: &Options) -> Result<Measures> {
    let count = if options.quick { 5 } else { 100 };
    let ptp = Path::new(REFERENCE).join("ptp");
    ensure!(
        ptp.is_file(),
        "{} is not there: `make bench` installs it",
        ptp.display()
    );
    fabric::apart(async |lab: Lab| {
        let ground = Ground::raise(lab, 1).await?;
        let measured = measure(&ground, count).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &Ground, count: usize) -> Result<Measures> {
    let node = ground.fabric.node(0)?;
    record(ground, node).await?;
    let plugins = [ours(ground, node)?, reference(node)?];
    let mut taken = [vec![], vec![], vec![], vec![]];
    for number in 0..count {
        for (nth, plugin) in plugins.iter().enumerate() {
            let container = format!("container{number}-{nth}");
            run(node, "ip", &["netns", "add", &container]).await?;
            let call = async |command| plugin.call(&node.host, command, &container).await;
            let (add, del) = (call("ADD").await?, call("DEL").await?);
            run(node, "ip", &["netns", "delete", &container]).await?;
            // The first call differs: it assigns a block and reads files.
            if number > 0 {
                taken[2 * nth].push(add);
                taken[2 * nth + 1].push(del);
            }
        }
    }
    let [add, del, ptp_add, ptp_del] = taken;
    let [add_p50, add_p99] = quantiles(add, [0.5, 0.99])?;
    let [del_p50] = quantiles(del, [0.5])?;
    let [ptp_add_p50] = quantiles(ptp_add, [0.5])?;
    let [ptp_del_p50] = quantiles(ptp_del, [0.5])?;
    Ok(Measures::from([
        ("cni_add_p50_ms", add_p50),
        ("cni_add_p99_ms", add_p99),
        ("cni_del_p50_ms", del_p50),
        ("cni_ptp_add_p50_ms", ptp_add_p50),
        ("cni_ptp_del_p50_ms", ptp_del_p50),
    ]))
}

/// Prepares a node and the datastore for plugins.
pub(super) async fn record(ground: &Ground, node: &Machine) -> Result<()> {
    let resources = Resources::new(ground.etcd.connect().await?);
    for (kind, name, spec) in [
        ("Node", node.plan.name.as_str(), json!({})),
        ("IPPool", "pool", json!({"cidr": "10.77.0.0/16"})),
    ] {
        let resource = json!({
            "kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": {"name": name}, "spec": spec,
        });
        resources.create(resource).await?;
    }
    // Plugins in Go look up their own process ID, which is that of the lab's pid namespace.
    run(node, "mount", &["-t", "proc", "proc", "/proc"]).await
}

/// A plugin, and the file with its configuration.
#[derive(Clone)]
pub(super) struct Plugin {
    program: PathBuf,
    config: PathBuf,
}

pub(super) fn ours(ground: &Ground, node: &Machine) -> Result<Plugin> {
    let program = std::env::current_exe()?.with_file_name("cambric-cni");
    ensure!(
        program.is_file(),
        "{} is not there: `make bench` builds it",
        program.display()
    );
    let config = json!({
        "cniVersion": "1.0.0", "name": "ours", "type": "cambric-cni",
        "etcd_endpoints": format!("http://{}", ground.fabric.plan.store_address()),
        "nodename": node.plan.name, "policy": {"type": "k8s"}, "ipam": {"type": "cambric-ipam"},
        "endpoint_status_dir": "/run/cambric/endpoint-status",
    });
    Plugin::new(program, node, &config)
}

pub(super) fn reference(node: &Machine) -> Result<Plugin> {
    let config = json!({
        "cniVersion": "1.0.0", "name": "theirs", "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.78.0.0/16", "dataDir": node.host.directory().join("ipam")},
    });
    Plugin::new(Path::new(REFERENCE).join("ptp"), node, &config)
}

impl Plugin {
    fn new(program: PathBuf, node: &Machine, config: &Value) -> Result<Self> {
        let name = program
            .file_name()
            .context("a plugin has a name")?
            .to_owned();
        let file = node.host.directory().join(name).with_extension("json");
        std::fs::write(&file, config.to_string())?;
        Ok(Self {
            program,
            config: file,
        })
    }

    /// Returns the name of its program.
    pub(super) fn name(&self) -> Option<&str> {
        self.program.file_name()?.to_str()
    }

    /// Returns the milliseconds of a call.
    pub(super) async fn call(&self, host: &Host, command: &str, container: &str) -> Result<f64> {
        let program = Program::new("/bin/sh")
            .args(["-c", "exec \"$0\" <\"$1\""])
            .arg(&self.program)
            .arg(&self.config)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{container}"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", REFERENCE);
        let began = Instant::now();
        let (status, output) = host.output(&program).await?;
        let took = began.elapsed();
        let text = String::from_utf8_lossy(&output);
        ensure!(
            status.success(),
            "{command} by {}: {text}",
            self.program.display()
        );
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// Runs a program of the system on the node.
pub(super) async fn run(node: &Machine, program: &str, arguments: &[&str]) -> Result<()> {
    let program = Program::new(program).args(arguments.iter().copied());
    let (status, _) = node.host.output(&program).await?;
    ensure!(status.success(), "{program:?}: {status}");
    Ok(())
}
