//! Paths of the suite's programs, and the program of the store.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use netns_lab::Program;
use netns_lab::fabric::{MachinePlan, Plan, Programs, Shape};

use super::args::StoreKind;

/// The daemons, beside this program.
pub(super) fn daemons() -> Result<Programs> {
    Ok(Programs {
        bgp_client: beside("cambric-bgp-client")?,
        felix: beside("cambric-felix")?,
        route_reflector: beside("cambric-route-reflector")?,
    })
}

/// The CNI plugin, beside this program.
pub(super) fn cni() -> Result<PathBuf> {
    beside("cambric-cni")
}

fn beside(name: &str) -> Result<PathBuf> {
    let own = own()?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        let directory = own.parent().unwrap_or_else(|| Path::new("/")).display();
        bail!("{name} is not beside cambric in {directory}; build it too (make build)");
    }
    Ok(path)
}

fn own() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program")
}

/// The directory of this program.
pub(super) fn directory() -> Result<PathBuf> {
    Ok(own()?.parent().unwrap_or_else(|| Path::new("/")).to_owned())
}

/// The store's program.
pub(super) fn store(kind: StoreKind) -> Result<PathBuf> {
    match kind {
        StoreKind::Embedded => own(),
        StoreKind::Etcd => in_path("etcd")
            .context("there is no etcd in PATH; install it (apt-get install etcd-server)"),
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/sbin:/usr/bin"));
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Returns the store's members as programs to start; each has an empty directory of its own.
pub(super) fn serve(kind: StoreKind, plan: &Plan, directories: &[PathBuf]) -> Result<Vec<Program>> {
    let program = Program::new(store(kind)?);
    let members = plan.store_addresses().zip(directories);
    Ok(match kind {
        StoreKind::Embedded => members
            .map(|(address, directory)| {
                program
                    .clone()
                    .args(["store", "serve", "--manifests"])
                    .arg(directory)
                    .arg("--listen")
                    .arg(address.to_string())
            })
            .collect(),
        StoreKind::Etcd => {
            let peer = |machine: &MachinePlan| format!("http://{}:2380", machine.v4);
            let cluster: Vec<_> = plan
                .stores
                .iter()
                .map(|machine| format!("{}={}", machine.name, peer(machine)))
                .collect();
            let cluster = cluster.join(",");
            let members = members.zip(&plan.stores);
            members
                .map(|((address, directory), machine)| {
                    let (url, peers) = (format!("http://{address}"), peer(machine));
                    program
                        .clone()
                        .arg("--data-dir")
                        .arg(directory)
                        .args(["--name", &machine.name, "--initial-cluster", &cluster])
                        .args(["--listen-peer-urls", &peers])
                        .args(["--initial-advertise-peer-urls", &peers])
                        .args(["--listen-client-urls", &url])
                        .args(["--advertise-client-urls", &url])
                })
                .collect()
        }
    })
}

/// Replaces this process with the simulator.
pub(super) fn simulator(shape: Shape) -> Result<ExitCode> {
    if shape.mesh {
        bail!("the simulator shows fabrics with reflectors: leave out --mesh or --sim");
    }
    let mut command = Command::new(beside("cambric-sim")?);
    command.arg("demo");
    command.arg("--nodes").arg(shape.nodes.to_string());
    command
        .arg("--reflectors")
        .arg(shape.reflectors.to_string());
    command
        .arg("--workloads")
        .arg(shape.workloads_per_node.to_string());
    Err(command.exec()).context("starting cambric-sim")
}
