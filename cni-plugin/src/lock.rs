//! One at a time: locks that all of this host's calls share.
//!
//! Each is one octet of one file (open file description locks): the kernel lets go of it when the
//! process ends, however it ends, and nothing is left to be removed. What is locked is an
//! attachment, for as long as something is done to it, and address management, so that many calls of
//! one host do not contend for its blocks in the store.

use std::fmt::Display;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use sha1::{Digest, Sha1};
use tokio::time::timeout;

use crate::failure::{Code, Failure};
use crate::limits::LOCK_TIMEOUT;

/// Where the file is.
const DIRECTORY: &str = "/run/cambric";
const FILE: &str = "cni.lock";

/// The octet of address management; those of attachments come after it.
const IPAM: i64 = 0;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// The lock of the attachment that has this interface on the host, which can be told from all that
/// may be left of one.
pub(crate) async fn attachment(interface: &str) -> Result<Lock, Failure> {
    lock(octet(interface), interface).await
}

/// The same if nobody has it: one that somebody works on is none to be waited for.
pub(crate) fn attachment_at_rest(interface: &str) -> Result<Option<Lock>, Failure> {
    let file = open(interface)?;
    match take(&file, octet(interface), Wait::No) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
        Err(error) => Err(fail(interface, &error)),
    }
}

/// The octet of an attachment: the same whichever version of this program asks. Two that meet in one
/// only wait for each other.
fn octet(interface: &str) -> i64 {
    let digest = Sha1::digest(interface);
    let number = digest.iter().take(7);
    number.fold(0, |number, octet| number << 8 | i64::from(*octet)) + IPAM + 1
}

/// The lock of address management.
pub(crate) async fn ipam() -> Result<Lock, Failure> {
    lock(IPAM, "address management").await
}

fn fail(what: &str, error: &dyn Display) -> Failure {
    let message = format!("locking {what} in {DIRECTORY}/{FILE}: {error}");
    Failure::new(Code::Io, message)
}

/// The file, to lock `what` in it.
fn open(what: &str) -> Result<File, Failure> {
    fs::create_dir_all(DIRECTORY).map_err(|error| fail(what, &error))?;
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(Path::new(DIRECTORY).join(FILE));
    file.map_err(|error| fail(what, &error))
}

async fn lock(at: i64, what: &str) -> Result<Lock, Failure> {
    let file = open(what)?;
    // In most cases there is nobody to wait for.
    if take(&file, at, Wait::No).is_ok() {
        return Ok(Lock { _file: file });
    }
    // A thread that goes on waiting after the time-out ends with the process.
    let waiting = tokio::task::spawn_blocking(move || take(&file, at, Wait::Yes).map(|()| file));
    match timeout(LOCK_TIMEOUT, waiting).await {
        Ok(Ok(Ok(file))) => Ok(Lock { _file: file }),
        Ok(Ok(Err(error))) => Err(fail(what, &error)),
        Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        Err(_) => {
            let message = format!("another call has worked on {what} for {LOCK_TIMEOUT:?}");
            Err(Failure::new(Code::Later, message))
        }
    }
}

/// Whether somebody who has the lock is waited for.
#[derive(Debug, Clone, Copy)]
enum Wait {
    No,
    Yes,
}

fn take(file: &File, at: i64, wait: Wait) -> nix::Result<()> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    };
    loop {
        let how = match wait {
            Wait::No => FcntlArg::F_OFD_SETLK(&range),
            Wait::Yes => FcntlArg::F_OFD_SETLKW(&range),
        };
        match fcntl(file, how) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_has_the_same_octet_in_every_version() {
        // The first 56 bits of SHA-1, and one.
        assert_eq!(octet("caliaa960f0d82e"), 0x00b9_8291_1a6c_7de6 + 1);
        assert_eq!(octet(""), 0x00da_39a3_ee5e_6b4b + 1);
        assert!(octet("cali9f3c0123456") > IPAM);
    }
}
