//! A compromised parser: a process that its parent has started, without a capability, and that sends
//! the parent any command. It asks for every port, in a network of the test's own.
//!
//! The test starts itself: as the test within namespaces, as the daemon, whose parent is the real one,
//! and as the parser of that parent.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::process::{Child, Command as Process, ExitCode, Stdio};

use bgp_daemon::parent::command::{Answer, Command};
use bgp_daemon::privileges;
use cambric_route_reflector::Reflector;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn, bind,
    getsockname, recvmsg, send, socket,
};

/// The argument that makes this program the test within namespaces.
const INSIDE: &str = "inside";

/// The variable that a parent sets for its parser.
const PARSER: &str = "CAMBRIC_PARSER";

/// The first octets of the line with the ports that a parser has got.
const GRANTED: &str = "granted: ";

/// Above the length of an answer to these commands.
const ANSWER_OCTETS_MAX: usize = 4096;

/// The neighbor's port is one to connect to.
const CONFIG: &str = r#"
asn = 64512
router_id = "127.0.0.1"
listen = ["127.0.0.1:179", "127.0.0.1:700"]

[guard]
ports = [800, 1790]

[[neighbor]]
address = "127.0.0.2"
asn = 64512
port = 900
"#;

/// The port of BGP, and those that the file names.
const PORTS: [u16; 4] = [179, 700, 800, 1790];

fn main() -> ExitCode {
    if env::var_os(PARSER).is_some() {
        return parser();
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    if has("--config") {
        return bgp_daemon::main::<Reflector>();
    }
    if has("--list") {
        // As other test programs do.
        if !has("--ignored") {
            println!("compromised_parser: test");
        }
        return ExitCode::SUCCESS;
    }
    match arguments.split_first() {
        Some((first, rest)) if first == INSIDE => inside(Path::new(&rest[0])),
        _ => parser_gets_only_the_ports_of_the_file(),
    }
    ExitCode::SUCCESS
}

fn parser_gets_only_the_ports_of_the_file() {
    let unshare = |words: &[&str]| {
        let mut process = Process::new("unshare");
        process.args(["-Urn", "--"]).args(words);
        process.status().is_ok_and(|status| status.success())
    };
    if !unshare(&["true"]) {
        println!("skipped: no namespaces");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("rr.sock");
    let config = directory.path().join("rr.toml");
    fs::write(&config, format!("control = {control:?}\n{CONFIG}")).expect("written");
    let own = env::current_exe().expect("a path");
    let up = "ip link set lo up && exec \"$0\" \"$1\" \"$2\"";
    let words = [own.to_str(), Some(INSIDE), config.to_str()].map(|word| word.expect("text"));
    assert!(unshare(&[&["sh", "-c", up][..], &words].concat()));
}

/// Starts the daemon, and compares the ports that its parser reports, and those that the kernel has.
fn inside(config: &Path) {
    let own = env::current_exe().expect("a path");
    assert_eq!(bound(), BTreeSet::new(), "a network without sockets");
    let mut process = Process::new(own);
    process.arg("--config").arg(config).stdin(Stdio::null());
    let daemon = process.stdout(Stdio::piped()).spawn();
    let mut daemon = Daemon(daemon.expect("it starts"));
    let output = daemon.0.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let granted = lines.find_map(|line| Some(line.strip_prefix(GRANTED)?.to_owned()));
    let granted = granted.expect("the parser has asked for every port");
    let wished = BTreeSet::from(PORTS);
    assert_eq!(granted, format!("{wished:?}"));
    // The parser still has its sockets, and a refused command has left none in its parent.
    assert_eq!(bound(), wished);
}

/// The daemon; killed when dropped. Its parser ends with it.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the ports of this network that a socket has.
fn bound() -> BTreeSet<u16> {
    let is_bound = |port: &u16| {
        // Without the option to share an address.
        let (family, kind) = (AddressFamily::Inet, SockType::Stream);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port));
        match bind(socket.as_raw_fd(), &address) {
            Err(Errno::EADDRINUSE) => true,
            done => done.map(|()| false).expect("root of the network binds it"),
        }
    };
    (1..=u16::MAX).filter(is_bound).collect()
}

/// Asks the parent for every port. Holds the sockets until the parent ends.
fn parser() -> ExitCode {
    privileges::give_up();
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, PORTS[0]));
    let error = own.expect_err("the process has no capability");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let mut granted = BTreeSet::new();
    for port in 0..=u16::MAX {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        match call(&Command::Bind(SocketAddr::V4(address))) {
            (Some(Answer::Done), sockets) => {
                let at: Vec<SockaddrIn> = sockets.iter().filter_map(|one| named(*one)).collect();
                assert_eq!(at, [address.into()]);
                granted.insert(port);
            }
            (Some(Answer::Refused(refusal)), sockets) => {
                // By the parent, not by the kernel.
                assert_eq!((refusal.errno, sockets), (0, Vec::new()), "{refusal:?}");
                let named = format!("port {port}:");
                assert!(refusal.why.contains(&named), "{refusal:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    println!("{GRANTED}{granted:?}");
    let (answer, _) = receive();
    assert_eq!(answer, None, "the parent has ended");
    ExitCode::SUCCESS
}

fn named(socket: RawFd) -> Option<SockaddrIn> {
    getsockname(socket).ok()
}

/// Sends a command to the parent at standard input; returns its answer and the descriptors with it.
fn call(command: &Command) -> (Option<Answer>, Vec<RawFd>) {
    let octets = command.encode();
    let sent = send(io::stdin().as_raw_fd(), &octets, MsgFlags::MSG_NOSIGNAL);
    assert_eq!(sent, Ok(octets.len()));
    receive()
}

/// Waits for a message of the parent; no answer if it has ended.
fn receive() -> (Option<Answer>, Vec<RawFd>) {
    let mut buffer = [0; ANSWER_OCTETS_MAX];
    let mut space = cmsg_space!([RawFd; 2]);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let (from, flags) = (io::stdin().as_raw_fd(), MsgFlags::MSG_CMSG_CLOEXEC);
    let message = recvmsg::<()>(from, &mut slices, Some(&mut space), flags).expect("received");
    let mut descriptors = Vec::new();
    for attached in message.cmsgs().expect("room") {
        if let ControlMessageOwned::ScmRights(numbers) = attached {
            descriptors.extend(numbers);
        }
    }
    let length = message.bytes;
    (Answer::decode(&buffer[..length]), descriptors)
}
