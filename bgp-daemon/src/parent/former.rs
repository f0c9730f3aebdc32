//! The parser of a parent that was killed: its end takes a moment, in which its ports are in use.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::limits::FORMER_PARSER_WAIT;

/// Octets of a process's name in `/proc`: `TASK_COMM_LEN` less the terminator.
const COMM_OCTETS: usize = 15;

/// Waits until the parser at this control socket has ended, if its parent has. A daemon with a parent
/// is left alone: the new one reports that it runs.
pub(super) fn await_end(control: &Path, program: &str) {
    let Ok(stream) = UnixStream::connect(control) else {
        return;
    };
    let Ok(peer) = getsockopt(&stream, sockopt::PeerCredentials) else {
        return;
    };
    if !is_orphan(peer.pid(), program) {
        return;
    }
    // From Linux 6.5; older kernels end the connection when the process closes its files.
    let ended = getsockopt(&stream, sockopt::PeerPidfd).unwrap_or_else(|_| OwnedFd::from(stream));
    let limit = u16::try_from(FORMER_PARSER_WAIT.as_millis()).unwrap_or(u16::MAX);
    let mut ended = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    // After that, the new daemon reports the port or the socket that is in use.
    let _ = poll(&mut ended, PollTimeout::from(limit));
}

/// Returns whether a process of this program has a parent of another one.
fn is_orphan(process: i32, program: &str) -> bool {
    let own = program.get(..COMM_OCTETS).unwrap_or(program);
    let name = |process: &str| {
        let name = fs::read_to_string(format!("/proc/{process}/comm"));
        name.unwrap_or_default().trim_end() == own
    };
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.is_some_and(|parent| name(&process.to_string()) && !name(parent.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_a_parent_of_its_program_is_no_orphan() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let comm = fs::read_to_string("/proc/self/comm").expect("readable");
        assert!(is_orphan(own, comm.trim_end()));
        assert!(!is_orphan(own, "cambric-other"));
        assert!(!is_orphan(0, comm.trim_end()));
    }
}
