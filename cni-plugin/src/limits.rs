//! Every limit of the plugin (I7 of ARCHITECTURE.md).

use std::time::Duration;

/// Octets of a request on standard input.
pub const REQUEST_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of what a delegated plugin answers.
pub const ANSWER_OCTETS_MAX: u64 = 1024 * 1024;

/// Octets of a container's id: an endpoint's name holds it.
pub const CONTAINER_ID_OCTETS_MAX: usize = 128;

/// How long those who work on the same attachment, or on addresses, are waited for. Longer than one of
/// them may take with addresses, so that one call to which the store answers slowly does not fail all
/// others of its host; and long, since all of them may be before this one. A runtime that has less
/// patience ends the call, which does no harm.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(300);

/// How long taking addresses may last once nobody else of the host does. Calico's plugin has 90 s, and
/// waits for its turn without an end.
pub const IPAM_TIMEOUT: Duration = Duration::from_secs(40);

/// How long giving addresses back may last: by DEL, and by an ADD that could not take all.
pub const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(15);

const _: () =
    assert!(IPAM_TIMEOUT.as_secs() + GIVE_BACK_TIMEOUT.as_secs() < LOCK_TIMEOUT.as_secs());

/// How long an interface that says of nobody to be his, and is down, is left to whoever makes it: a
/// plugin that does not know our locks may be about to bring it up.
pub const HALF_MADE: Duration = Duration::from_secs(1);

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
