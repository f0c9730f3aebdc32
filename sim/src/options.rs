//! The options that a seed draws: the size of the fabric, and its faults.

use std::time::Duration;

use bgp_speaker::rib::SendPaths;
use netns_lab::fabric::{Plan, Shape, ShapeError};

use crate::chance::Chance;
use crate::net::Weather;

/// A fabric and its faults. Faults have shares: an act is drawn with the probability of its share
/// of the sum of all shares, and never if its share is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Nodes.
    pub nodes: u16,
    /// Reflectors.
    pub reflectors: u16,
    /// Whether all nodes are neighbors of each other, without reflectors.
    pub mesh: bool,
    /// Whether reflectors are clients of each other instead of non-client peers (RFC 4456 §5).
    pub reflector_clients: bool,
    /// The number of workloads.
    pub workloads: usize,
    /// The duration of the chaos; zero for none.
    pub chaos: Duration,
    /// Longest interval between two faults.
    pub pause: Duration,
    /// The hold time of every session, in seconds.
    pub hold_time_s: u16,
    /// Restart time of every session in seconds; `None` disables graceful restart.
    pub restart_time_s: Option<u16>,
    /// The paths of a prefix that every speaker sends; `None`: one path (RFC 7911).
    pub add_path: Option<SendPaths>,
    /// How long a restarting BGP daemon defers route selection; zero: not at all.
    pub restart_wait: Duration,
    /// The network conditions during the chaos.
    pub weather: Weather,
    /// Probability of kernel faults during the chaos, in thousandths.
    pub kernel_faults: u16,
    /// Probability of failed host commands during the chaos, in thousandths.
    pub host_faults: u64,
    /// Whether foreign routes occupy keys that learned routes need.
    pub conflicts: bool,
    /// Shares of added, removed and moved workloads, and of links going down and up.
    pub churn: [u64; 4],
    /// Shares of crashes of BGP clients, of Felix, of reflectors, of reboots of nodes, and of
    /// restarts of BGP daemons.
    pub crashes: [u64; 5],
    /// Shares of cuts of the network, of resets of streams, and of partitions.
    pub cuts: [u64; 3],
    /// Shares of stalls of daemons, of lost kernel notifications, of datastore faults, and of BGP
    /// daemons that stop reading.
    pub stalls: [u64; 4],
    /// The share of lies: a node announces the address of another node's workload, forges
    /// ORIGINATOR_ID, and registers as a route reflector. Above 0, reflectors enforce the records of
    /// the datastore.
    pub lies: u64,
    /// Shares of changed policies, of changed labels of endpoints, of invalid policies, and of packet
    /// filters that another program changes. If all are 0, there are no policies.
    pub policies: [u64; 4],
    /// Whether BGP clients answer to routes that Felix is about to remove.
    pub answers: bool,
    /// Whether packets are sent after each turn ([`crate::oracle::arrival`]).
    pub probes: bool,
    /// The interval in milliseconds and the multiplier of BFD with all neighbors; `None`: without BFD.
    pub bfd: Option<(u32, u8)>,
}

impl Default for Options {
    /// Returns twenty nodes with two reflectors in good conditions, without chaos.
    fn default() -> Self {
        Self {
            nodes: 20,
            reflectors: 2,
            mesh: false,
            reflector_clients: false,
            workloads: 40,
            chaos: Duration::ZERO,
            pause: Duration::from_secs(2),
            hold_time_s: 90,
            restart_time_s: Some(120),
            add_path: None,
            restart_wait: Duration::from_secs(90),
            weather: Weather::default(),
            kernel_faults: 0,
            host_faults: 0,
            conflicts: false,
            churn: [4, 2, 4, 2],
            crashes: [2, 2, 1, 1, 2],
            cuts: [2, 2, 1],
            stalls: [1, 1, 2, 2],
            lies: 0,
            policies: [0; 4],
            answers: true,
            probes: false,
            bfd: None,
        }
    }
}

impl Options {
    /// Draws the options of this seed for a fabric of so many nodes. Each kind of fault is enabled
    /// in some runs and disabled in others, so that none hides another.
    #[must_use]
    pub fn draw(seed: u64, nodes: u16) -> Self {
        let mut chance = Chance::new(seed ^ 0x5EED_0F0A_11CA_B1E5);
        let reflectors = *chance.pick(&[1, 2, 2, 2, 3]).unwrap_or(&2);
        let mut options = Self {
            nodes,
            reflectors,
            reflector_clients: reflectors > 1 && chance.strikes(300),
            workloads: usize::from(nodes) * 2,
            chaos: Duration::from_secs(chance.within(60..=240)),
            pause: Duration::from_millis(chance.within(200..=5_000)),
            hold_time_s: *chance.pick(&[6, 30, 90]).unwrap_or(&90),
            restart_time_s: *chance.pick(&[None, Some(20), Some(120)]).unwrap_or(&None),
            restart_wait: Duration::from_secs(*chance.pick(&[0, 10, 90]).unwrap_or(&90)),
            kernel_faults: *chance.pick(&[0, 0, 10, 50]).unwrap_or(&0),
            host_faults: *chance.pick(&[0, 0, 50]).unwrap_or(&0),
            conflicts: chance.strikes(250),
            ..Self::default()
        };
        options.weather = Weather {
            delay_us: (20, *chance.pick(&[200, 2_000, 50_000]).unwrap_or(&200)),
            loss: *chance.pick(&[0, 0, 10, 100]).unwrap_or(&0),
            buffer_octets: *chance.pick(&[512, 4 << 10, 64 << 10]).unwrap_or(&512),
            segment_octets: *chance.pick(&[7, 100, 1448, 9000]).unwrap_or(&1448),
        };
        let shares = options.churn.iter_mut().chain(&mut options.crashes);
        for share in shares.chain(&mut options.cuts).chain(&mut options.stalls) {
            if chance.strikes(300) {
                *share = 0;
            }
        }
        let several = [SendPaths::Best(2), SendPaths::EqualCost, SendPaths::All];
        if chance.strikes(400) {
            options.add_path = chance.pick(&several).copied();
        }
        // Of its own generator, so that a seed keeps its other faults.
        let mut chance = Chance::new(seed ^ 0x0F11_CEBA_D5EE_D500);
        if chance.strikes(400) {
            options.policies = [8, 3, 2, 1];
            for share in options.policies.iter_mut().skip(1) {
                if chance.strikes(300) {
                    *share = 0;
                }
            }
        }
        options
    }

    /// Returns whether there are policies.
    #[must_use]
    pub const fn has_policies(&self) -> bool {
        let [changed, labels, broken, tampered] = self.policies;
        changed + labels + broken + tampered > 0
    }

    /// Returns the names and addresses: those of the lab.
    ///
    /// # Errors
    /// The size is not supported.
    pub fn plan(&self) -> Result<Plan, ShapeError> {
        Plan::new(Shape {
            nodes: self.nodes,
            reflectors: self.reflectors,
            workloads_per_node: 0,
            mesh: self.mesh,
        })
    }
}
