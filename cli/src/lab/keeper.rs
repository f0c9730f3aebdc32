//! `cambric lab up`, within its namespaces: runs a fabric and answers requests about it.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use netns_lab::NamespaceFiles;
use nix::sys::socket::{Backlog, listen};
use nix::unistd::{dup2_stderr, dup2_stdout};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::args::{Inside, UpArgs};
use super::diagram::Scene;
use super::journal::{Journal, print_line};
use super::limits::{ANSWER, REQUEST_OCTETS_MAX};
use super::stage::{self, Stage};
use super::{kernels, sessions};

/// A request to a keeper; one JSON object on a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
    /// The state of the fabric.
    Status {},
    /// Add a workload at a node.
    AddWorkload {
        /// Its name.
        workload: String,
        /// The node.
        node: String,
    },
    /// Delete a workload.
    DeleteWorkload {
        /// Its name.
        workload: String,
    },
    /// Get the namespaces of a host.
    Host {
        /// Its name.
        name: String,
    },
}

/// A reply of a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// To [`Request::Status`].
    Status(FabricStatus),
    /// To [`Request::AddWorkload`]: every kernel has routes to these addresses.
    Connected {
        /// Its addresses.
        addresses: Vec<IpAddr>,
    },
    /// To [`Request::DeleteWorkload`]: no kernel has a route to it any more.
    Disconnected {},
    /// To [`Request::Host`]: descriptors in the keeper.
    Host {
        /// Network namespace.
        network: i32,
        /// Mount namespace.
        mounts: i32,
        /// UTS namespace.
        uts: i32,
        /// The store's address, as in `ETCD_ENDPOINTS`.
        store: String,
    },
    /// There is no such host; these exist.
    NoHost {
        /// Their names.
        hosts: Vec<String>,
    },
    /// The request failed.
    Error {
        /// The error.
        message: String,
    },
}

impl Answer {
    fn failed(error: &anyhow::Error) -> Self {
        Self::Error {
            message: format!("{error:#}"),
        }
    }
}

/// The state of a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FabricStatus {
    /// The diagram.
    pub(super) diagram: String,
    /// Its machines.
    pub(super) machines: Vec<MachineStatus>,
}

/// The state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineStatus {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) sessions_up: usize,
    pub(super) sessions_wanted: usize,
    /// Correct workload routes, and the number of wanted ones; reflectors have none.
    pub(super) routes: Option<(usize, usize)>,
    pub(super) workloads: Vec<String>,
    /// Daemon name and resident octets; `None` if it has ended.
    pub(super) daemons: Vec<(String, Option<u64>)>,
}

/// Starts the fabric, detaches from the terminal, and serves until killed.
pub(super) async fn run(
    up: &UpArgs,
    inside: Inside,
    directory: PathBuf,
    socket: OwnedFd,
) -> Result<ExitCode> {
    // This process calls `listen` again: a client finds the process to kill by the credentials of
    // the listener.
    listen(&socket, Backlog::MAXCONN).context("listening on the keeper's socket")?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let mut journal = Journal::default();
    let mut stage = stage::build(&up.fabric, inside, directory, &mut journal).await?;
    stage.start_daemons(&mut journal).await?;
    stage.add_workloads(&mut journal).await?;
    print_line(&format!(
        "\n{}",
        Scene::of(&stage.fabric, &[]).draw().trim_end()
    ));
    let log = File::create(stage.fabric.lab().root().directory().join("keeper.log"))?;
    dup2_stdout(&log).context("letting go of the terminal")?;
    dup2_stderr(&log).context("letting go of the terminal")?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        // One client at a time: answers take milliseconds, and a silent client is disconnected.
        let served = timeout(ANSWER, serve(stream, &mut stage)).await;
        if let Ok(Err(error)) = served {
            print_line(&format!("a request failed: {error:#}"));
        }
    }
}

async fn serve(stream: UnixStream, stage: &mut Stage) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(REQUEST_OCTETS_MAX))
        .read_line(&mut line)
        .await?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request, stage).await,
        Err(error) => Answer::Error {
            message: error.to_string(),
        },
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    Ok(write.write_all(text.as_bytes()).await?)
}

async fn answer(request: Request, stage: &mut Stage) -> Answer {
    match request {
        Request::Status {} => match status(stage).await {
            Ok(status) => Answer::Status(status),
            Err(error) => Answer::failed(&error),
        },
        Request::AddWorkload { workload, node } => {
            match stage.add_workload(&workload, &node).await {
                Ok(addresses) => Answer::Connected { addresses },
                Err(error) => Answer::failed(&error),
            }
        }
        Request::DeleteWorkload { workload } => match stage.delete_workload(&workload).await {
            Ok(()) => Answer::Disconnected {},
            Err(error) => Answer::failed(&error),
        },
        Request::Host { name } => match stage.fabric.host(&name) {
            Some(host) => {
                let NamespaceFiles {
                    network,
                    mounts,
                    uts,
                } = host.namespace_files();
                Answer::Host {
                    network,
                    mounts,
                    uts,
                    store: stage.fabric.plan.store_urls().join(","),
                }
            }
            None => Answer::NoHost {
                hosts: stage
                    .fabric
                    .hosts()
                    .map(|host| host.name().to_owned())
                    .collect(),
            },
        },
    }
}

async fn status(stage: &Stage) -> Result<FabricStatus> {
    let fabric = &stage.fabric;
    let sessions = sessions::of(fabric).await;
    let machines = fabric.reflectors.iter().chain(&fabric.nodes);
    let mut all = Vec::new();
    for (i, (machine, sessions)) in machines.zip(sessions).enumerate() {
        let mut status = MachineStatus {
            name: machine.plan.name.clone(),
            address: machine.plan.v4.to_string(),
            sessions_up: sessions.up,
            sessions_wanted: sessions.wanted,
            ..MachineStatus::default()
        };
        for daemon in &machine.daemons {
            let resident = daemon.process.usage().map(|usage| usage.resident_octets);
            status.daemons.push((daemon.name.to_owned(), resident));
        }
        if let Some(place) = i.checked_sub(fabric.reflectors.len()) {
            let wanted = stage.owners.len();
            let wrong = kernels::differences(fabric, &stage.owners, place)
                .await?
                .len();
            status.routes = Some((wanted.saturating_sub(wrong), wanted));
            let here = fabric
                .workloads
                .iter()
                .filter(|workload| workload.place == place);
            status.workloads = here.map(|workload| workload.name.clone()).collect();
        }
        all.push(status);
    }
    let dead: Vec<String> = all
        .iter()
        .filter(|machine| {
            machine
                .daemons
                .iter()
                .any(|(_, resident)| resident.is_none())
        })
        .map(|machine| machine.name.clone())
        .collect();
    Ok(FabricStatus {
        diagram: Scene::of(fabric, &dead).draw(),
        machines: all,
    })
}
