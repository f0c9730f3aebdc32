//! Every limit of the plugin (I7 of ARCHITECTURE.md).

use std::time::Duration;

/// Octets of a request on standard input.
pub const REQUEST_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of what a delegated plugin answers.
pub const ANSWER_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of a container's id: an endpoint's name holds it.
pub const CONTAINER_ID_OCTETS_MAX: usize = 128;

/// How long the answer of one who works on the same attachment is waited for.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long address management may take once it is the only one on its host (as in Calico).
pub const IPAM_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a delegated plugin may take.
pub const DELEGATE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long Felix may take to set an endpoint up, unless the network's configuration says otherwise.
pub const FELIX_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the kernel may take to answer one request.
pub const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often an endpoint that somebody else writes at the same time is written again.
pub const WRITE_ATTEMPTS_MAX: u32 = 10;

/// Hexadecimal digits of a digest, or octets of a container's id, in the name of an interface.
pub const INTERFACE_DIGITS: usize = 11;

/// Octets of a network's name: it stands in an interface's alias, with the container's id.
pub const NETWORK_OCTETS_MAX: usize = 64;
