//! The workloads. Each is a module with a function that starts a daemon, drives it, checks the
//! routes of every receiver, and returns the measures.

mod addresses;
mod bfd;
mod churn;
mod containers;
mod crowded;
mod cutting;
mod death;
pub mod fanout;
mod felix;
mod fib;
mod floods;
mod forwarding;
mod idle;
pub mod internet;
mod keep;
mod kube;
mod labels;
pub mod latency;
mod live;
mod many;
mod members;
mod nexthop;
mod noisy;
mod order;
mod path;
mod rack;
mod records;
mod rules;
mod ruleset_copy;
mod s3;
mod scheduling;
mod stall;
mod storm;
mod watch;

use anyhow::Result;
use netns_lab::Lab;

use crate::daemons::Kind;
use crate::stage::{Measures, Options};

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Work {
    /// 1,000,000 routes from one external peer to one monitor
    S1,
    /// The same 100,000 routes from 20 external peers, and two monitors
    S2,
    /// 200 reflection clients of 250 routes, all to all; then single routes
    S3,
    /// 1,000 reflection clients of 64 routes, all to all
    S3b,
    /// The reflector of s3b restarts; IPv4 and IPv6, ADD-PATH, TCP-MD5
    Storm,
    /// 40 of the 1,000 clients of s3b vanish at once
    Rack,
    /// One of the 200 clients of s3 stops reading
    Stall,
    /// Attacks on the reflector: the latency between two quiet clients
    Floods,
    /// Neighbors with short hold times, and 1,000,000 routes that are announced and withdrawn
    Keep,
    /// Clients of s3 change at random
    Churn,
    /// 1,000,000 routes into the kernel, compared with a bare netlink loop
    Fib,
    /// 100,000 kernel routes of which a next hop fails, with nexthop objects and without
    Nexthop,
    /// From etcd through Felix, BGP and a reflector into another node's kernel
    Path,
    /// Changes of the configuration in etcd, until a neighbor or the kernel has them
    Live,
    /// 10,000 endpoints on other nodes: the memory of a node's daemons
    Many,
    /// A reflector reads the records of 250,000 endpoints for origin validation
    Records,
    /// Policies on a host, from etcd to the kernel's packet filter
    Felix,
    /// Established flows that a policy forbids, until their last packet
    Cutting,
    /// Packets that pass, with and without policies and the flow log
    Forwarding,
    /// One member of a set changes, in a large set and among many sets
    Members,
    /// 1,500 endpoints on one host, and containers connected ten at a time among them
    Crowded,
    /// A label of a profile changes for 50,000 endpoints
    Labels,
    /// A host with 200 endpoints and 1,000 policies that do not change
    Idle,
    /// Two workloads while another one of their node floods
    Noisy,
    /// The start of Felix with lists of the datastore in different orders
    Order,
    /// The rules of the kernel compared with the policies: `cambric check rules`
    Rules,
    /// etcd restarts under 200 watchers
    Watch,
    /// Addresses: 1,000 for one host, and 10 for each of 100 hosts that start at once
    Ipam,
    /// 1,000 sessions of BFD beside routes that come and go
    Bfd,
    /// Hosts that are cut off silently, until no other kernel has their routes
    Death,
    /// Containers connected one after the other, compared with the reference plugin ptp
    Cni,
    /// The controller of Kubernetes with 10,000 pods, and NetworkPolicies until the kernel has them
    Kube,
}

impl Work {
    /// Returns the name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "s1",
            Self::S2 => "s2",
            Self::S3 => "s3",
            Self::S3b => "s3b",
            Self::Storm => "storm",
            Self::Rack => "rack",
            Self::Stall => "stall",
            Self::Floods => "floods",
            Self::Keep => "keep",
            Self::Churn => "churn",
            Self::Fib => "fib",
            Self::Nexthop => "nexthop",
            Self::Path => "path",
            Self::Live => "live",
            Self::Many => "many",
            Self::Records => "records",
            Self::Felix => "felix",
            Self::Cutting => "cutting",
            Self::Forwarding => "forwarding",
            Self::Members => "members",
            Self::Crowded => "crowded",
            Self::Labels => "labels",
            Self::Idle => "idle",
            Self::Noisy => "noisy",
            Self::Order => "order",
            Self::Rules => "rules",
            Self::Watch => "watch",
            Self::Ipam => "ipam",
            Self::Bfd => "bfd",
            Self::Death => "death",
            Self::Cni => "cni",
            Self::Kube => "kube",
        }
    }

    /// Returns the daemons that are compared by default: Cambric first.
    pub const fn daemons(self) -> &'static [Kind] {
        match self {
            Self::S1 | Self::S2 | Self::Nexthop => &[Kind::Cambric, Kind::Bird],
            Self::S3 => &[Kind::Cambric, Kind::Bird, Kind::FrrFast, Kind::Relay],
            Self::S3b => &[Kind::Cambric, Kind::FrrFast],
            Self::Storm | Self::Rack => &[Kind::Cambric, Kind::Bird, Kind::FrrFast],
            _ => &[Kind::Cambric],
        }
    }

    /// Returns the sufficient number of rounds: workloads that take minutes also vary less.
    pub const fn rounds_max(self) -> usize {
        match self {
            Self::S1 | Self::S2 | Self::S3 | Self::S3b | Self::Fib | Self::Nexthop => usize::MAX,

            Self::Storm
            | Self::Rack
            | Self::Stall
            | Self::Floods
            | Self::Keep
            | Self::Path
            | Self::Live
            | Self::Many
            | Self::Records
            | Self::Felix
            | Self::Cutting
            | Self::Forwarding
            | Self::Members
            | Self::Crowded
            | Self::Labels
            | Self::Idle
            | Self::Noisy
            | Self::Order
            | Self::Rules
            | Self::Watch
            | Self::Ipam
            | Self::Cni
            | Self::Kube => 3,
            Self::Bfd | Self::Death | Self::Churn => 1,
        }
    }

    /// Runs it once with one daemon.
    pub async fn run(self, lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
        match self {
            Self::S1 => internet::s1(lab, kind, options).await,
            Self::S2 => internet::s2(lab, kind, options).await,
            Self::S3 => s3::s3(lab, kind, options).await,
            Self::S3b => s3::s3b(lab, kind, options).await,
            Self::Storm => storm::storm(lab, kind, options).await,
            Self::Rack => rack::rack(lab, kind, options).await,
            Self::Stall => stall::stall(lab, kind, options).await,
            Self::Floods => floods::floods(lab, kind, options).await,
            Self::Keep => keep::keep(lab, kind, options).await,
            Self::Churn => churn::churn(lab, kind, options).await,
            Self::Fib => fib::fib(lab, options).await,
            Self::Nexthop => nexthop::nexthop(lab, kind, options).await,
            Self::Path => path::path(options),
            Self::Live => live::live(options),
            Self::Many => many::many(options),
            Self::Records => records::records(options),
            Self::Felix => felix::felix(options),
            Self::Cutting => cutting::cutting(options),
            Self::Forwarding => forwarding::forwarding(options),
            Self::Members => members::members(options),
            Self::Crowded => crowded::crowded(options),
            Self::Labels => labels::labels(options),
            Self::Idle => idle::idle(options),
            Self::Noisy => noisy::noisy(options),
            Self::Order => order::order(options),
            Self::Rules => rules::rules(options),
            Self::Watch => watch::watch(options),
            Self::Ipam => addresses::addresses(options),
            Self::Bfd => bfd::bfd(lab, options).await,
            Self::Death => death::death(options),
            Self::Cni => containers::containers(options),
            Self::Kube => kube::kube(options),
        }
    }
}
