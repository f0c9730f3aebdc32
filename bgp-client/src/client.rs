//! The BGP daemon of a host: its names, and its drivers.

use bgp_daemon::{Forwarding, Program};

use crate::limits::PROGRAM;
use crate::{Kernel, KernelConfig, Writer};

/// The BGP daemon of a host.
#[derive(Clone, Copy, Debug)]
pub struct Client;

impl Program for Client {
    const NAME: &'static str = PROGRAM;
    const ABOUT: &'static str =
        "Advertises this host's workloads over BGP and installs learned routes";
    const CONFIG_DEFAULT: &'static str = "/etc/cambric/bgp-client.toml";
    const FORWARDING: Forwarding = Forwarding::Kernel;
    const FAREWELL: &'static str = "BGP client stops";

    type Settings = KernelConfig;
    type Drivers = (Kernel,);
    type Duty = Writer;
}
