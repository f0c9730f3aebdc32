//! The parent process: one thread, no runtime, and no octet of a neighbor.

use std::env;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command as Process, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::command::{Answer, Command, ParentReport, Refusal};
use super::handle::MARK;
use super::restarts::Restarts;
use super::{Bounds, Duty, channel, former};
use crate::guard::Table;
use crate::privileges::{ParentRestrictions, confine_parent, held_mask};
use crate::{Config, Program, heap};

/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;

/// Starts the parser and serves it until it has ended. Returns the exit code of the daemon.
pub(crate) fn serve<P: Program>(config: Config<P::Settings>) -> ExitCode {
    former::await_end(&config.control(), P::NAME);
    let restrictions = confine_parent(&config.files());
    let server = Server::<P>::new(&config, restrictions);
    // Its neighbors take memory.
    drop(config);
    heap::trim();
    match server.and_then(|mut server| server.run()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{}: the process that starts the daemon: {error}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

/// The parent of a program's parser.
struct Server<P: Program> {
    path: PathBuf,
    bounds: Bounds,
    duty: P::Duty,
    restrictions: ParentRestrictions,
    signals: SignalFd,
    parser: Option<Parser>,
    restarts: Restarts,
    /// When the next parser starts.
    start_at: Option<Instant>,
    /// A signal ends the daemon.
    is_stopping: bool,
    buffer: Vec<u8>,
}

/// A running parser.
struct Parser {
    process: Child,
    /// The socket of its commands; `None` once it is closed.
    commands: Option<OwnedFd>,
}

/// The descriptors that are ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    signals: bool,
    commands: bool,
    duty: bool,
}

impl<P: Program> Server<P> {
    fn new(config: &Config<P::Settings>, restrictions: ParentRestrictions) -> io::Result<Self> {
        let mut handled = SigSet::empty();
        let all = [
            Signal::SIGHUP,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGCHLD,
        ];
        all.into_iter().for_each(|signal| handled.add(signal));
        // The parser inherits that, and unblocks them.
        handled.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            path: config.path.clone(),
            bounds: Bounds::new(config),
            duty: P::Duty::new(config),
            restrictions,
            signals: SignalFd::with_flags(&handled, flags)?,
            parser: None,
            restarts: Restarts::new(Instant::now()),
            start_at: None,
            is_stopping: false,
            buffer: Vec::new(),
        })
    }

    /// Returns the exit code of the daemon.
    fn run(&mut self) -> io::Result<u8> {
        self.start()?;
        loop {
            if self.start_at.is_some_and(|at| at <= Instant::now()) {
                self.start_again()?;
            }
            let ready = self.wait()?;
            if ready.signals
                && let Some(code) = self.take_signals()?
            {
                return Ok(code);
            }
            if ready.commands {
                self.answer();
            }
            if ready.duty {
                self.duty.serve();
            }
        }
    }

    /// Starts a parser by the file as it is now: its settings that only a start reads may have changed.
    fn start_again(&mut self) -> io::Result<()> {
        if let Some(config) = self.read() {
            self.duty.renew(&config);
        }
        heap::trim();
        self.start()
    }

    /// Reads the file; returns it if it is valid. The parser's commands are compared with it.
    fn read(&mut self) -> Option<Config<P::Settings>> {
        let config = Config::read(&self.path).ok()?;
        self.bounds = Bounds::new(&config);
        Some(config)
    }

    fn start(&mut self) -> io::Result<()> {
        let (own, other) = channel::pair()?;
        // The same file, also if an upgrade has replaced it since.
        let mut process = Process::new("/proc/self/exe");
        let mut words = env::args_os();
        if let Some(name) = words.next() {
            process.arg0(name);
        }
        process
            .args(words)
            .env(MARK, "1")
            // It would name this process, and the parser sends the pings.
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(other));
        self.parser = Some(Parser {
            process: process.spawn()?,
            commands: Some(own),
        });
        self.start_at = None;
        self.restarts.started(Instant::now());
        Ok(())
    }

    /// Waits for a signal, a command, or the next start.
    fn wait(&self) -> io::Result<Ready> {
        let commands = self.parser.as_ref().and_then(|one| one.commands.as_ref());
        let read = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut all = vec![read(self.signals.as_fd())];
        all.extend(commands.iter().map(|socket| read(socket.as_fd())));
        let own = all.len();
        all.extend(self.duty.descriptors().into_iter().map(read));
        let timeout = match self.start_at {
            None => PollTimeout::NONE,
            Some(at) => {
                let rest = at.saturating_duration_since(Instant::now());
                let milliseconds = u16::try_from(rest.as_millis()).unwrap_or(u16::MAX);
                PollTimeout::from(milliseconds.saturating_add(1))
            }
        };
        match poll(&mut all, timeout) {
            Err(Errno::EINTR) => return Ok(Ready::default()),
            polled => polled?,
        };
        let is_ready = |one: &PollFd<'_>| one.any().unwrap_or(true);
        let of = |range: std::ops::Range<usize>| {
            all.get(range).is_some_and(|some| some.iter().any(is_ready))
        };
        Ok(Ready {
            signals: of(0..1),
            commands: of(1..own),
            duty: of(own..all.len()),
        })
    }

    /// Handles all signals. Returns the exit code if the daemon has ended.
    fn take_signals(&mut self) -> io::Result<Option<u8>> {
        while let Some(signal) = self.signals.read_signal()? {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            match Signal::try_from(number) {
                Ok(Signal::SIGCHLD) => {
                    if let Some(code) = self.look_at_parser()? {
                        return Ok(Some(code));
                    }
                }
                Ok(Signal::SIGHUP) => {
                    // Before the parser reads it.
                    drop(self.read());
                    heap::trim();
                    self.forward(Signal::SIGHUP);
                }
                Ok(signal) => {
                    self.is_stopping = true;
                    if self.parser.is_none() {
                        return Ok(Some(0));
                    }
                    self.forward(signal);
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    fn forward(&self, signal: Signal) {
        if let Some(parser) = &self.parser
            && let Ok(id) = i32::try_from(parser.process.id())
        {
            // It is not waited for yet, so the number is still that of the parser.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    /// Returns the exit code if the parser has ended the daemon; arranges the next start if it has
    /// crashed.
    fn look_at_parser(&mut self) -> io::Result<Option<u8>> {
        let Some(parser) = &mut self.parser else {
            return Ok(None);
        };
        let Some(status) = parser.process.try_wait()? else {
            return Ok(None);
        };
        // The writes that it has sent before its end are executed.
        self.duty.serve();
        self.parser = None;
        match status.code() {
            Some(0) if self.is_stopping => Ok(Some(0)),
            // A parser must not stop the daemon: a service manager does not start a daemon again that
            // has ended with success.
            Some(code) if code != PANICKED && code != 0 => {
                Ok(Some(u8::try_from(code).unwrap_or(1)))
            }
            _ if self.is_stopping => Ok(Some(1)),
            _ => {
                let (now, how) = (Instant::now(), text(status));
                self.start_at = self.restarts.crashed(now, how);
                Ok(self.start_at.is_none().then_some(1))
            }
        }
    }

    /// Executes one command of the parser.
    fn answer(&mut self) {
        let Some(parser) = &mut self.parser else {
            return;
        };
        let Some(commands) = &parser.commands else {
            return;
        };
        let command = match channel::receive_now(commands, &mut self.buffer) {
            Ok(Some(octets)) => Command::decode(octets),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(None) | Err(_) => {
                parser.commands = None;
                return;
            }
        };
        let (answer, descriptors) = match command {
            Some(command) => self.execute(command),
            None => (refused("no such command"), Vec::new()),
        };
        let commands = self.parser.as_ref().and_then(|one| one.commands.as_ref());
        if let Some(commands) = commands {
            // A parser that does not read its answers is not waited for.
            let flags = MsgFlags::MSG_DONTWAIT;
            let _ = channel::send(commands, &answer.encode(), &descriptors, flags);
        }
    }

    fn execute(&mut self, command: Command) -> (Answer, Vec<OwnedFd>) {
        let holder = self.bounds.holder();
        let answer = match command {
            Command::Bind(address) => match self.bounds.check_port(address.port()) {
                Ok(()) => match bgp_io::bind(address) {
                    Ok(socket) => return (Answer::Done, vec![socket]),
                    Err(error) => failed(&error),
                },
                Err(why) => refused(why),
            },
            Command::LoadGuard { ports, peers } => match self.bounds.cover(ports, peers) {
                Ok(cover) => done(Table::Own.load(holder, &cover)),
                Err(why) => refused(why),
            },
            Command::WithdrawGuard => match self.bounds.check_withdrawal() {
                Ok(()) => done(Table::Own.withdraw(holder)),
                Err(why) => refused(why),
            },
            Command::ReadGuard => match Table::Own.read() {
                Ok(loaded) => Answer::Guard(loaded),
                Err(refusal) => Answer::Refused(refusal),
            },
            Command::Open => match self.duty.open() {
                Ok((descriptors, note)) => return (Answer::Opened(note), descriptors),
                Err(error) => failed(&error),
            },
            Command::Report => Answer::Report(ParentReport {
                pid: std::process::id(),
                capabilities: held_mask(),
                restarts: self.restarts.count,
                last: self.restarts.last.clone(),
                landlock_abi: self.restrictions.landlock.clone().ok(),
                seccomp: self.restrictions.seccomp.is_ok(),
                incomplete: self.restrictions.reasons(),
            }),
            Command::ReadFile => {
                let is_valid = self.read().is_some();
                heap::trim();
                match is_valid {
                    true => Answer::Done,
                    false => refused("it has read a file with a mistake"),
                }
            }
        };
        (answer, Vec::new())
    }
}

fn done(result: Result<(), Refusal>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(refusal) => Answer::Refused(refusal),
    }
}

fn refused(why: impl Into<String>) -> Answer {
    Answer::Refused(Refusal {
        why: why.into(),
        ..Refusal::default()
    })
}

fn failed(error: &io::Error) -> Answer {
    let errno = error.raw_os_error().unwrap_or_default();
    Answer::Refused(Refusal {
        errno: u16::try_from(errno).unwrap_or_default(),
        is_permission: error.kind() == io::ErrorKind::PermissionDenied,
        why: error.to_string(),
    })
}

/// Returns how a process ended.
fn text(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => signal.to_string(),
        _ => status.to_string(),
    }
}
