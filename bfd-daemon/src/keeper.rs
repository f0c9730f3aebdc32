//! The parent of the daemon on hosts without systemd: it stores descriptors of the daemon, and starts it
//! again.
//!
//! Its messages are those of the service manager (`NOTIFY_SOCKET`, `FDSTORE=1`, `LISTEN_FDS`), so that the
//! daemon has one way for both. The keeper has no other work, and so no reason to end or to be upgraded.

#![allow(unsafe_code)] // A received descriptor is a number; and the descriptors of a child are arranged.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::future::pending;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use bfd::Random;
use daemon_common::daemon::{Signal, Signals};
use nix::cmsg_space;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal as Number, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::limits::{
    DESCRIPTORS_KEPT_MAX, KEEPER_MESSAGE_OCTETS_MAX, KEEPER_PAUSE, KEEPER_PAUSE_FAILED,
};
use crate::random::SystemRandom;
use crate::report::DAEMON;
use crate::store::{KEEPER, PASSED_FIRST, SIZE};

/// The first argument that makes the program a keeper. The other ones are those of the daemon.
pub const SUPERVISE: &str = "--supervise";

/// Arguments with which the program ends at once, so that there is nothing to supervise.
const ONE_SHOT: [&str; 6] = ["--check", "--reload", "--help", "-h", "--version", "-V"];

/// The exit code of a mistake on the command line.
const USAGE: u8 = 2;

/// The keeper.
struct Keeper {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: Directory,
    socket: UnixDatagram,
    /// The stored descriptors with their names. Their numbers are above those of a child's.
    stored: Vec<(String, OwnedFd)>,
    child: Option<Child>,
    /// When the daemon is started.
    start_at: Option<Instant>,
    /// Whether an operator ends both.
    is_stopping: bool,
    /// Whether a daemon was ready since the keeper has started.
    was_ready: bool,
}

/// A directory of this process, which is removed with it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Another program may have removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the daemon with these arguments, again after each end of it, until SIGTERM or SIGINT. If no daemon
/// was ready yet and one ends with an error, its exit code is returned.
#[must_use]
pub fn supervise(arguments: Vec<OsString>) -> ExitCode {
    let is_one_shot = |argument: &&OsString| ONE_SHOT.iter().any(|one| argument == one);
    if let Some(argument) = arguments.iter().find(is_one_shot) {
        let argument = argument.display();
        eprintln!(
            "error: {SUPERVISE} and {argument} exclude each other: {argument} ends at once; omit \
             {SUPERVISE}"
        );
        return ExitCode::from(USAGE);
    }
    let built = reserve().and_then(|reserved| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok((reserved, runtime))
    });
    let done = built.and_then(|(_reserved, runtime)| {
        runtime.block_on(async { Keeper::new(arguments)?.run().await })
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{DAEMON} {SUPERVISE}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Occupies the numbers that the descriptors of a child have, so that no other descriptor has them.
fn reserve() -> io::Result<Vec<File>> {
    let mut reserved = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() >= PASSED_FIRST + DESCRIPTORS_KEPT_MAX as RawFd {
            return Ok(reserved);
        }
        reserved.push(file);
    }
}

impl Keeper {
    fn new(arguments: Vec<OsString>) -> io::Result<Self> {
        // The path, not the file: after an upgrade it is another build.
        let program = std::env::current_exe()?;
        let name = format!("{DAEMON}-{:016x}", SystemRandom::open()?.next_u64());
        let directory = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let directory = Directory(directory);
        let socket = UnixDatagram::bind(directory.notify())?;
        Ok(Self {
            program,
            arguments,
            directory,
            socket,
            stored: Vec::new(),
            child: None,
            start_at: Some(Instant::now()),
            is_stopping: false,
            was_ready: false,
        })
    }

    async fn run(mut self) -> io::Result<ExitCode> {
        let mut signals = Signals::new()?;
        let mut ended = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                signal = signals.next() => self.signal(signal),
                _ = ended.recv() => if let Some(code) = self.reap()? {
                    return Ok(code);
                },
                _ = self.socket.readable() => self.receive(),
                () = at(self.start_at) => self.start(),
            }
            if self.is_stopping && self.child.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Passes a signal on. For the daemon, the end of its keeper is no restart.
    fn signal(&mut self, signal: Signal) {
        let (number, ends) = match signal {
            Signal::Terminate | Signal::Interrupt => (Number::SIGINT, true),
            Signal::Reload => (Number::SIGHUP, false),
        };
        if ends {
            self.is_stopping = true;
            self.start_at = None;
        }
        let pid = self.child.as_ref().map(Child::id);
        if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
            // It may just have ended: then `reap` follows.
            let _ = kill(Pid::from_raw(pid), number);
        }
    }

    /// Schedules the next start, if the daemon has ended. Returns the exit code of the keeper if it ends too:
    /// the daemon has reported an error, and none was ready before.
    fn reap(&mut self) -> io::Result<Option<ExitCode>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let Some(status) = child.try_wait()? else {
            return Ok(None);
        };
        self.child = None;
        if self.is_stopping {
            return Ok(None);
        }
        // Its last messages may still wait.
        self.receive();
        let failed = status.code().filter(|code| *code != 0);
        if let Some(code) = failed.filter(|_| !self.was_ready) {
            eprintln!("{DAEMON} {SUPERVISE}: the daemon does not start ({status})");
            return Ok(Some(
                u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
            ));
        }
        let pause = match failed {
            None => KEEPER_PAUSE,
            Some(_) => KEEPER_PAUSE_FAILED,
        };
        eprintln!("{DAEMON} {SUPERVISE}: the daemon has ended ({status}) and is started again");
        self.start_at = Some(Instant::now() + pause);
        Ok(None)
    }

    fn start(&mut self) {
        self.start_at = None;
        // The last messages of the former process come first.
        self.receive();
        match self.spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                let program = self.program.display();
                eprintln!("{DAEMON} {SUPERVISE}: {program}: {error}");
                self.start_at = Some(Instant::now() + KEEPER_PAUSE_FAILED);
            }
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let names = self.stored.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.collect();
        let numbers = self.stored.iter().map(|(_, stored)| stored.as_raw_fd());
        let places: Vec<(RawFd, RawFd)> = numbers.zip(PASSED_FIRST..).collect();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("NOTIFY_SOCKET", self.directory.notify())
            .env(SIZE, DESCRIPTORS_KEPT_MAX.to_string())
            .env(KEEPER, std::process::id().to_string())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env_remove("LISTEN_PID")
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID");
        let arrange = move || {
            // Without its keeper, the daemon ends: otherwise a new keeper could not start one.
            set_pdeathsig(Number::SIGINT)?;
            for (number, place) in &places {
                // SAFETY: the call takes two numbers. The places are reserved, so that no descriptor of
                // this process is replaced.
                if unsafe { libc::dup2(*number, *place) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: after the fork, the closure makes only system calls, and allocates nothing.
        unsafe { command.pre_exec(arrange) };
        command.spawn()
    }

    /// Reads the messages that wait.
    fn receive(&mut self) {
        let socket = self.socket.as_raw_fd();
        while let Ok((text, descriptors)) =
            self.socket.try_io(Interest::READABLE, || receive(socket))
        {
            self.handle(&text, descriptors);
        }
    }

    /// Stores or removes descriptors, and notes that the daemon is ready. Other messages are on its state,
    /// which `cambric show` has.
    fn handle(&mut self, text: &str, descriptors: Vec<OwnedFd>) {
        let has = |line: &str| text.lines().any(|one| one == line);
        self.was_ready |= has("READY=1");
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let Some(name) = name.filter(|name| !name.contains(':')) else {
            return;
        };
        if has("FDSTOREREMOVE=1") {
            self.stored.retain(|(stored, _)| stored != name);
        } else if has("FDSTORE=1") {
            for descriptor in descriptors {
                if self.stored.len() >= DESCRIPTORS_KEPT_MAX {
                    eprintln!(
                        "{DAEMON} {SUPERVISE}: there are already {DESCRIPTORS_KEPT_MAX} descriptors"
                    );
                    return;
                }
                self.stored.push((name.to_owned(), descriptor));
            }
        }
    }
}

impl Directory {
    fn notify(&self) -> PathBuf {
        Path::join(&self.0, "notify")
    }
}

/// Reads one message without waiting.
fn receive(socket: RawFd) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut octets = [0; KEEPER_MESSAGE_OCTETS_MAX];
    let mut space = cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let mut slices = [IoSliceMut::new(&mut octets)];
    let message = recvmsg::<()>(socket, &mut slices, Some(&mut space), flags)?;
    let mut descriptors = Vec::new();
    for attached in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = attached {
            // SAFETY: the kernel has just made these descriptors for this process, and nothing else refers
            // to them.
            let owned = numbers
                .into_iter()
                .map(|number| unsafe { OwnedFd::from_raw_fd(number) });
            descriptors.extend(owned);
        }
    }
    let length = message.bytes;
    let text = octets.get(..length).unwrap_or_default();
    Ok((String::from_utf8_lossy(text).into_owned(), descriptors))
}

/// Waits until an instant, or forever.
async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}
