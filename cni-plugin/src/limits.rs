//! Every limit of the plugin.

use std::time::Duration;

/// Octets of a request on standard input.
pub const REQUEST_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of the result of a delegated plugin.
pub const ANSWER_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of a container's id, which is part of the endpoint's name.
pub const CONTAINER_ID_OCTETS_MAX: usize = 128;

/// Maximum wait for other calls that hold the lock of the same attachment, or of address
/// management. It is longer than one call may hold the lock of address management, so that one call
/// with a slow datastore does not fail all other calls of its host, and it covers several calls
/// queued ahead of this one. A runtime with a shorter timeout ends the call, which does no harm.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum time to assign addresses once the lock is held. Calico's plugin has 90 s, and waits for
/// its lock without a limit.
pub const IPAM_TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum time to release addresses: by DEL, and by an ADD that could not assign all.
pub const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(15);

const _: () =
    assert!(IPAM_TIMEOUT.as_secs() + GIVE_BACK_TIMEOUT.as_secs() < LOCK_TIMEOUT.as_secs());

/// Maximum time for the API server of Kubernetes to answer all requests of an ADD.
pub const API_TIMEOUT: Duration = Duration::from_secs(20);

/// Time during which an interface without an alias that is down is left to its creator: a plugin
/// that does not use these locks may be about to bring it up.
pub const HALF_MADE: Duration = Duration::from_secs(1);

/// Maximum run time of a delegated plugin.
pub const DELEGATE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time for Felix to set an endpoint up, unless the network's configuration sets another
/// one.
pub const FELIX_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at the reports of Felix if their directories cannot be watched.
pub const FELIX_LOOK: Duration = Duration::from_millis(100);

/// Maximum time for the kernel to answer one request.
pub const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts to write an endpoint despite concurrent writes.
pub const WRITE_ATTEMPTS_MAX: u32 = 10;

/// Hexadecimal digits of a digest, or octets of a container's id, in the name of an interface.
pub const INTERFACE_DIGITS: usize = 11;

/// Octets of a network's name, which is part of an interface's alias, with the container's id.
pub const NETWORK_OCTETS_MAX: usize = 64;
