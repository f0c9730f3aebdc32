//! `cambric lab status`, `workload`, `exec` and `down`: the process outside the namespaces, which
//! connects to a keeper.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Pid, getuid};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{AddWorkloadArgs, DelWorkloadArgs};
use super::keeper::{Answer, FabricStatus, Request};
use super::limits::{ANSWER, DOWN};
use super::programs;

/// Returns the directory of the keepers' sockets.
fn runtime_directory() -> PathBuf {
    if getuid().is_root() {
        return PathBuf::from("/run/cambric-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if Path::new(&directory).is_dir() => {
            PathBuf::from(directory).join("cambric-lab")
        }
        _ => std::env::temp_dir().join(format!("cambric-lab-{}", getuid())),
    }
}

fn socket_path(name: &str) -> PathBuf {
    runtime_directory().join(format!("{name}.sock"))
}

/// Reserves a name for a new fabric: returns its socket, and the path of it.
pub(super) fn claim(name: &str) -> Result<(UnixListener, PathBuf)> {
    let directory = runtime_directory();
    let made = fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(&directory);
    made.with_context(|| format!("creating {}", directory.display()))?;
    // A directory of another user under a shared one would let that user answer in the keeper's
    // place.
    if fs::symlink_metadata(&directory)?.uid() != getuid().as_raw() {
        bail!("{} belongs to another user", directory.display());
    }
    let path = socket_path(name);
    if UnixStream::connect(&path).is_ok() {
        let option = option(name);
        bail!(
            "a fabric exists already; show it: cambric lab status{option}, or remove it: cambric \
             lab down{option}"
        );
    }
    // Left over from a keeper that was killed.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
    Ok((listener, path))
}

/// Returns whether a keeper listens at this socket.
pub(super) fn answers(path: &Path) -> bool {
    Keeper::at(path)
        .and_then(|keeper| keeper.ask(&Request::Status {}))
        .is_ok()
}

/// `cambric lab status`
pub(super) fn status(name: &str) -> Result<ExitCode> {
    let keeper = Keeper::find(name)?;
    match keeper.ask(&Request::Status {})? {
        Answer::Status(status) => {
            println!("{}\n{}", status.diagram, table(&status));
            let good = status.machines.iter().all(|machine| {
                machine.sessions_up == machine.sessions_wanted
                    && machine.routes.is_none_or(|(held, wanted)| held == wanted)
            });
            Ok(if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        other => unexpected(other),
    }
}

fn table(status: &FabricStatus) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "host",
        "address",
        "sessions",
        "routes",
        "workloads",
        "daemons",
    ]);
    for machine in &status.machines {
        let daemons = machine
            .daemons
            .iter()
            .map(|(daemon, resident)| match resident {
                Some(octets) => format!("{daemon} {:.1} MB", *octets as f64 / 1e6),
                None => format!("{daemon} has ended"),
            });
        let routes = machine
            .routes
            .map(|(held, wanted)| format!("{held} of {wanted}"));
        table.add_row([
            machine.name.clone(),
            machine.address.clone(),
            format!("{} of {}", machine.sessions_up, machine.sessions_wanted),
            routes.unwrap_or_default(),
            machine.workloads.join(" "),
            daemons.collect::<Vec<_>>().join(", "),
        ]);
    }
    table.to_string()
}

/// `cambric lab workload add`
pub(super) fn add_workload(add: &AddWorkloadArgs) -> Result<ExitCode> {
    let ask = Request::AddWorkload {
        workload: add.workload.clone(),
        node: add.node.clone(),
    };
    match Keeper::find(&add.fabric.name)?.ask(&ask)? {
        Answer::Connected { addresses } => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let addresses = addresses.join(", ");
            println!(
                "{} at {}: {addresses}; every kernel leads to it",
                add.workload, add.node
            );
            Ok(ExitCode::SUCCESS)
        }
        other => unexpected(other),
    }
}

/// `cambric lab workload del`
pub(super) fn delete_workload(delete: &DelWorkloadArgs) -> Result<ExitCode> {
    let workload = delete.workload.clone();
    match Keeper::find(&delete.fabric.name)?.ask(&Request::DeleteWorkload { workload })? {
        Answer::Disconnected {} => {
            println!("{}: removed from every kernel", delete.workload);
            Ok(ExitCode::SUCCESS)
        }
        other => unexpected(other),
    }
}

/// `cambric lab exec`
pub(super) fn exec(name: &str, host: &str, command: &[String]) -> Result<ExitCode> {
    let keeper = Keeper::find(name)?;
    let (network, mounts, uts, store) = match keeper.ask(&Request::Host {
        name: host.to_owned(),
    })? {
        Answer::Host {
            network,
            mounts,
            uts,
            store,
        } => (network, mounts, uts, store),
        Answer::NoHost { hosts } => {
            bail!(
                "no host called {host} in this fabric; there are {}",
                hosts.join(", ")
            )
        }
        other => return unexpected(other),
    };
    let path = match std::env::var_os("PATH") {
        Some(path) => {
            let mut parts = vec![programs::directory()?];
            parts.extend(std::env::split_paths(&path));
            std::env::join_paths(parts)?
        }
        None => programs::directory()?.into_os_string(),
    };
    let here = std::env::current_dir().ok();
    keeper
        .enter(network, mounts, uts)
        .with_context(|| format!("entering {host}"))?;
    // The mount namespace has another root with the same files; the working directory must be
    // entered again.
    if let Some(here) = here {
        let _ = std::env::set_current_dir(here);
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let mut process = Command::new(program);
    process.args(arguments);
    process.env("PATH", path).env("ETCD_ENDPOINTS", store);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Signals of the terminal are for the command.
        let _interrupt = signal(SignalKind::interrupt())?;
        let _quit = signal(SignalKind::quit())?;
        let mut child = tokio::process::Command::from(process)
            .spawn()
            .with_context(|| format!("starting {program} on {host}"))?;
        let status = child.wait().await?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from))
    })
}

/// `cambric lab down`
pub(super) fn down(name: &str) -> Result<ExitCode> {
    let keeper = Keeper::find(name)?;
    match kill(keeper.pid, Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error).with_context(|| format!("killing {}", keeper.pid)),
    }
    let deadline = Instant::now() + DOWN;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        while alive(keeper.pid) {
            if Instant::now() > deadline {
                bail!(
                    "process {} was killed but is still there after {DOWN:?}",
                    keeper.pid
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })?;
    fs::remove_file(socket_path(name)).context("removing the keeper's socket")?;
    // Not empty if there are other fabrics.
    let _ = fs::remove_dir(runtime_directory());
    println!("The fabric is removed.");
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a process runs; a zombie does not.
fn alive(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A listening keeper.
struct Keeper {
    pid: Pid,
    stream: UnixStream,
}

impl Keeper {
    fn find(name: &str) -> Result<Self> {
        let path = socket_path(name);
        if UnixStream::connect(&path).is_err() {
            let others = others();
            if others.is_empty() {
                bail!("no fabric is up; start one: cambric lab up{}", option(name));
            }
            bail!(
                "no fabric is up by the name of {name}; there are: {}",
                others.join(", ")
            );
        }
        Self::at(&path)
    }

    fn at(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let credentials = getsockopt(&stream, PeerCredentials)?;
        Ok(Self {
            pid: Pid::from_raw(credentials.pid()),
            stream,
        })
    }

    fn ask(&self, request: &Request) -> Result<Answer> {
        let mut text = serde_json::to_string(request)?;
        text.push('\n');
        (&self.stream)
            .write_all(text.as_bytes())
            .context("asking the keeper")?;
        let mut line = String::new();
        BufReader::new(&self.stream)
            .read_line(&mut line)
            .context("waiting for the keeper")?;
        serde_json::from_str(&line).context("reading the keeper's answer")
    }

    /// Enters the keeper's namespaces by these descriptors; children enter the keeper's pid
    /// namespace.
    fn enter(&self, network: i32, mounts: i32, uts: i32) -> Result<()> {
        let open = |what: String| {
            let path = format!("/proc/{}/{what}", self.pid);
            File::open(&path).with_context(|| path)
        };
        let own_user = fs::metadata("/proc/self/ns/user")?.ino();
        let user = open("ns/user".to_owned())?;
        let pids = open("ns/pid".to_owned())?;
        let [network, mounts, uts] = [network, mounts, uts].map(|fd| open(format!("fd/{fd}")));
        if user.metadata()?.ino() != own_user {
            setns(&user, CloneFlags::CLONE_NEWUSER)?;
        }
        setns(&pids, CloneFlags::CLONE_NEWPID)?;
        setns(&network?, CloneFlags::CLONE_NEWNET)?;
        setns(&uts?, CloneFlags::CLONE_NEWUTS)?;
        unshare(CloneFlags::CLONE_FS)?;
        setns(&mounts?, CloneFlags::CLONE_NEWNS)?;
        Ok(())
    }
}

/// The names of fabrics that are up.
fn others() -> Vec<String> {
    let Ok(entries) = fs::read_dir(runtime_directory()) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let live = paths.filter(|path| UnixStream::connect(path).is_ok());
    let mut names: Vec<String> = live
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

/// Returns the option that makes a command refer to this fabric.
pub(super) fn option(name: &str) -> String {
    if name == "default" {
        String::new()
    } else {
        format!(" --name {name}")
    }
}

fn unexpected<T>(answer: Answer) -> Result<T> {
    match answer {
        Answer::Error { message } => bail!("{message}"),
        _ => bail!("unexpected answer of the keeper; is it another version?"),
    }
}
