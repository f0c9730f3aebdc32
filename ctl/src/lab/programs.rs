//! Where the programs of the suite are, and which one is the store.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use lab::Program;
use lab::fabric::{Plan, Programs, Shape};

use super::args::StoreKind;

/// The daemons, beside this program.
pub(super) fn daemons() -> Result<Programs> {
    Ok(Programs {
        bgp_client: beside("cambric-bgp-client")?,
        felix: beside("cambric-felix")?,
        route_reflector: beside("cambric-route-reflector")?,
    })
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

/// The store as a program to start; `directory` is empty and its own.
pub(super) fn serve(kind: StoreKind, plan: &Plan, directory: &Path) -> Result<Program> {
    let address = plan.store_address();
    let program = Program::new(store(kind)?);
    Ok(match kind {
        StoreKind::Embedded => program
            .args(["store", "serve", "--manifests"])
            .arg(directory)
            .arg("--listen")
            .arg(address.to_string()),
        StoreKind::Etcd => {
            let url = format!("http://{address}");
            let peers = format!("http://{}:2380", address.ip());
            program
                .arg("--data-dir")
                .arg(directory)
                .args(["--name", "lab", "--initial-cluster"])
                .arg(format!("lab={peers}"))
                .args([
                    "--listen-peer-urls",
                    &peers,
                    "--initial-advertise-peer-urls",
                    &peers,
                ])
                .args([
                    "--listen-client-urls",
                    &url,
                    "--advertise-client-urls",
                    &url,
                ])
        }
    })
}

/// Becomes the simulator.
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
