//! From the command line into the namespaces.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::args::{Args, Command, DemoArgs, Inside, UpArgs, WorkloadCommand};
use super::{client, demo, keeper, programs};

/// Runs `cambric lab …`. Must be called while the process has one thread only: entering a user
/// namespace, here or for `exec`, is refused otherwise.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match (args.command, args.inside) {
        (Command::Demo(demo), Some(inside)) => demo_inside(&demo, inside),
        (Command::Demo(demo), None) => demo_outside(&demo),
        (Command::Up(up), Some(inside)) => up_inside(&up, inside),
        (Command::Up(up), None) => up_outside(&up),
        (Command::Status(name), _) => client::status(&name.name),
        (Command::Workload(WorkloadCommand::Add(add)), _) => client::add_workload(&add),
        (Command::Workload(WorkloadCommand::Del(del)), _) => client::delete_workload(&del),
        (Command::Exec(exec), _) => client::exec(&exec.name.name, &exec.host, &exec.command),
        (Command::Down(name), _) => client::down(&name.name),
    }
}

/// Reports all errors that can be found before anything is built.
fn check(fabric: &super::args::FabricArgs) -> Result<()> {
    fabric.plan()?;
    programs::daemons()?;
    programs::cni()?;
    programs::store(fabric.store)?;
    Ok(())
}

fn demo_outside(demo: &DemoArgs) -> Result<ExitCode> {
    if demo.sim {
        return programs::simulator(demo.fabric.shape());
    }
    check(&demo.fabric)?;
    let mut child = enter(|process| process.stdin(Stdio::piped()))?;
    // This end of the pipe stays open until the process ends: its end is visible on the other side.
    let lifeline = child.stdin.take();
    let status = child.wait().context("waiting for the lab")?;
    drop(lifeline);
    Ok(exit_code(status.code()))
}

fn demo_inside(demo: &DemoArgs, inside: Inside) -> Result<ExitCode> {
    // The kernel kills this process together with the one outside. The pipe shows whether that one
    // ended before this call.
    set_pdeathsig(Signal::SIGKILL).context("tying this process to its parent")?;
    thread::Builder::new()
        .name("lifeline".to_owned())
        .spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            std::process::exit(1);
        })?;
    let demo = demo.clone().resolved()?;
    let directory = settle()?;
    runtime()?.block_on(demo::run(&demo, inside, directory))
}

fn up_outside(up: &UpArgs) -> Result<ExitCode> {
    check(&up.fabric)?;
    let name = &up.name.name;
    let (socket, path) = client::claim(name)?;
    let socket = OwnedFd::from(socket);
    let started = enter(|process| process.stdin(socket).stdout(Stdio::piped()));
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
    };
    if let Some(mut progress) = child.stdout.take() {
        // Ends when the keeper closes it: the fabric is up, or it has failed.
        io::copy(&mut progress, &mut io::stdout()).context("reading the lab's progress")?;
    }
    if !client::answers(&path) {
        let status = child.wait().context("waiting for the lab")?;
        let _ = std::fs::remove_file(&path);
        return Ok(exit_code(status.code()));
    }
    let option = client::option(name);
    println!("\nNext: cambric lab status{option}");
    println!("      cambric lab exec{option} node1 -- cambric show neighbors");
    println!("      cambric lab exec{option} node1 -- cambric get nodes -o wide");
    println!("      cambric lab workload add{option} web --node node1");
    println!("      cambric lab down{option}");
    Ok(ExitCode::SUCCESS)
}

fn up_inside(up: &UpArgs, inside: Inside) -> Result<ExitCode> {
    nix::unistd::setsid().context("leaving the terminal's session")?;
    let socket = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("taking the keeper's socket")?;
    let directory = settle()?;
    runtime()?.block_on(keeper::run(up, inside, directory, socket))
}

/// Enters fresh namespaces and starts this program again as their process 1.
fn enter(prepare: impl FnOnce(&mut Process) -> &mut Process) -> Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let enclosure = match netns_lab::enclose() {
        Ok(enclosure) => enclosure,
        Err(error @ netns_lab::Error::Forbidden { .. }) => bail!("{error}; {INSTEAD}"),
        Err(error) => return Err(error.into()),
    };
    let mut process = Process::new(program);
    process.args(std::env::args_os().skip(1));
    process.arg("--inside").arg(Inside::from(enclosure).flag());
    prepare(&mut process)
        .spawn()
        .context("starting process 1 of the lab")
}

/// Hint for machines without namespaces.
const INSTEAD: &str = "the same fabric in the simulator needs none: cambric lab demo --sim";

fn settle() -> Result<PathBuf> {
    // Some containers grant namespaces but reject mounts in them.
    netns_lab::settle().map_err(|error| anyhow::anyhow!("{error}; {INSTEAD}"))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("starting the runtime")
}

fn exit_code(code: Option<i32>) -> ExitCode {
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

impl DemoArgs {
    /// Makes the paths of files to write absolute and creates their directories, while the user's
    /// file system is still visible.
    fn resolved(mut self) -> Result<Self> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).with_context(|| format!("{}", path.display()))
        };
        self.json = self.json.map(absolute).transpose()?;
        self.logs = self.logs.map(absolute).transpose()?;
        if let Some(logs) = &self.logs {
            std::fs::create_dir_all(logs)
                .with_context(|| format!("creating {}", logs.display()))?;
        }
        Ok(self)
    }
}
