//! The programs of host endpoints.

use super::endpoints::Endpoint;
use super::fabric::Fabric;
use super::failsafe::FailsafePort;
use super::passage::{Cache, answers, of_host, tiers};
use super::policies::{Direction, Stage};
use super::values::DISCOVERY;
use crate::packet::{Family, Field, protocol, state};
use crate::ranges::Ranges;
use crate::space::{Act, ConditionId, ProgramId, Space, Step};

/// The interface of a host endpoint for all interfaces that no other one applies to.
const ALL: &str = "*";
/// The interface that such a host endpoint does not apply to.
const LOOPBACK: &str = "lo";
const ROUTER_ADVERTISEMENT: u128 = 134;

/// A base chain of Felix that host endpoints decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostHook {
    /// Packets that arrive, before connection tracking.
    Untracked,
    /// Packets of the host, before connection tracking.
    UntrackedOutput,
    /// Packets that arrive, before their destination is translated.
    Untranslated,
    /// Packets to the host.
    Input,
    /// Packets of the host.
    Output,
    /// Packets through the host, where they arrive.
    Forward,
    /// Packets through the host, where they leave.
    ForwardTo,
}

impl HostHook {
    /// All hooks.
    pub const ALL: [Self; 7] = [
        Self::Untracked,
        Self::UntrackedOutput,
        Self::Untranslated,
        Self::Input,
        Self::Output,
        Self::Forward,
        Self::ForwardTo,
    ];

    /// Returns the chain, the kernel's hook and the priority.
    pub const fn chain(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Untracked => ("host-untracked", "prerouting", -300),
            Self::UntrackedOutput => ("host-untracked-output", "output", -300),
            Self::Untranslated => ("host-untranslated", "prerouting", -150),
            Self::Input => ("host-input", "input", 0),
            Self::Output => ("host-output", "output", 0),
            Self::Forward => ("host-forward", "forward", 0),
            Self::ForwardTo => ("host-forward-to", "forward", 1),
        }
    }

    /// Returns whether its packets are known by the interface on which they arrive.
    pub const fn is_inbound(self) -> bool {
        matches!(
            self,
            Self::Untracked | Self::Untranslated | Self::Input | Self::Forward
        )
    }

    const fn direction(self) -> Direction {
        match self.is_inbound() {
            true => Direction::Ingress,
            false => Direction::Egress,
        }
    }

    const fn stage(self) -> Stage {
        match self {
            Self::Untracked | Self::UntrackedOutput => Stage::Untracked,
            Self::Untranslated => Stage::Untranslated,
            Self::Input | Self::Output => Stage::Normal,
            Self::Forward | Self::ForwardTo => Stage::Forward,
        }
    }
}

impl Fabric {
    /// Returns the host endpoint that applies to an interface.
    fn host_endpoint(&self, interface: &str) -> Option<&Endpoint> {
        let named = |name: &str| self.hosts.iter().find(|host| host.interface == name);
        let is_excluded = interface == LOOPBACK || self.is_excluded(interface);
        let all = named(ALL).filter(|_| !is_excluded);
        named(interface).or(all)
    }

    /// Returns whether no host endpoint applies to an interface. Patterns are not evaluated.
    pub(super) fn is_excluded(&self, interface: &str) -> bool {
        self.settings.excluded.iter().any(|name| name == interface)
    }

    /// Returns whether interfaces are excluded by a pattern.
    pub(super) fn has_patterns(&self) -> bool {
        let mut excluded = self.settings.excluded.iter();
        excluded.any(|part| part.starts_with('/'))
    }

    /// Returns whether a name is that of a workload interface.
    pub(crate) fn is_workload(&self, interface: &str) -> bool {
        let mut prefixes = self.settings.prefixes.iter();
        prefixes.any(|prefix| interface.starts_with(&**prefix))
    }
}

/// The program of a hook for an interface, and the steps that lead to it.
pub(super) struct Builder<'b, 'f> {
    pub(super) fabric: &'f Fabric,
    pub(super) cache: &'b mut Cache,
    pub(super) space: &'b mut Space,
    pub(super) family: Family,
    pub(super) steps: Vec<Step>,
}

impl Builder<'_, '_> {
    pub(super) fn program(mut self, hook: HostHook, interface: &str) -> ProgramId {
        self.add_all(hook, interface);
        let place = self.space.place("no policy decides".to_owned());
        self.steps.push(Step {
            conditions: Vec::new(),
            act: Act::Accept,
            place,
        });
        self.space.program(self.steps)
    }

    fn add_all(&mut self, hook: HostHook, interface: &str) {
        let is_local = matches!(hook, HostHook::Input | HostHook::Output);
        if self.fabric.is_workload(interface) && is_local {
            return;
        }
        let Some(endpoint) = self.fabric.host_endpoint(interface) else {
            return;
        };
        // Policies without connection tracking do not apply to all interfaces.
        let is_for_all = endpoint.interface == ALL;
        let direction = hook.direction();
        let mut has = |stage: Stage, direction: Direction| {
            let of = (endpoint, direction, stage);
            let has_effect = !is_for_all || stage != Stage::Untracked;
            has_effect && !tiers(self.fabric, self.cache, self.space, of, self.family).is_empty()
        };
        let asks = has(hook.stage(), direction);
        let is_untracked = has(Stage::Untracked, direction);
        let marks = match hook {
            HostHook::Input | HostHook::Forward => {
                is_untracked || has(Stage::Untranslated, Direction::Ingress)
            }
            HostHook::Output | HostHook::Untranslated => is_untracked,
            HostHook::ForwardTo | HostHook::Untracked | HostHook::UntrackedOutput => false,
        };
        if marks {
            let marked = self.space.is(Field::Marked, 1);
            self.add(vec![marked], Act::Accept, "accepted before");
        } else if hook == HostHook::Untranslated {
            // Only a policy of the same interface marks a packet before.
            let marked = self.space.is(Field::Marked, 1);
            self.add(vec![marked], Act::Either, "accepted before");
        }
        self.tunnels(hook);
        match hook {
            HostHook::Input | HostHook::Output => {
                if hook == HostHook::Output {
                    let translated = self.space.is(Field::Translated, 1);
                    self.add(vec![translated], Act::Accept, "translated destination");
                }
                let answers = answers(self.space, Act::Accept);
                self.steps.push(answers);
                self.failsafe(hook);
                let of = (endpoint, direction);
                let steps = of_host(self.fabric, self.cache, self.space, of, self.family);
                self.steps.extend(steps);
            }
            _ if !asks => {}
            HostHook::Forward | HostHook::ForwardTo => {
                let answers = answers(self.space, Act::Accept);
                self.steps.push(answers);
                self.policies(endpoint, hook);
            }
            HostHook::Untranslated => {
                let answers = answers(self.space, Act::Accept);
                self.steps.push(answers);
                self.failsafe(hook);
                self.policies(endpoint, hook);
            }
            HostHook::Untracked | HostHook::UntrackedOutput => {
                self.failsafe(hook);
                self.policies(endpoint, hook);
            }
        }
    }

    fn add(&mut self, conditions: Vec<ConditionId>, act: Act, text: &str) {
        let place = self.space.place(text.to_owned());
        self.steps.push(Step {
            conditions,
            act,
            place,
        });
    }

    /// Adds the policies of the stage, for packets that are not part of no connection.
    fn policies(&mut self, endpoint: &Endpoint, hook: HostHook) {
        let stage = hook.stage();
        if stage != Stage::Untracked && !self.fabric.settings.takes_invalid {
            let invalid = self.space.is(Field::State, state::INVALID);
            self.add(vec![invalid], Act::Drop, "packets of no connection");
        }
        let of = (endpoint, hook.direction(), stage);
        let programs = tiers(self.fabric, self.cache, self.space, of, self.family);
        for program in programs {
            self.add(Vec::new(), Act::Call(program), "policies");
        }
    }

    /// Adds the tunnels between hosts. Packets of other sources to the host are dropped before, unless it
    /// is before connection tracking or translation.
    fn tunnels(&mut self, hook: HostHook) {
        let end = match hook {
            HostHook::Input => None,
            HostHook::Output | HostHook::UntrackedOutput => Some(Field::Destination),
            HostHook::Untracked | HostHook::Untranslated => Some(Field::Source),
            HostHook::Forward | HostHook::ForwardTo => return,
        };
        let tunnels = &self.fabric.tunnels;
        for mut conditions in tunnels.packets(self.space, self.family) {
            if let Some(end) = end {
                let ends = tunnels.ends(self.family);
                conditions.push(self.space.is_in(end, ends, true));
            }
            self.add(conditions, Act::Accept, "tunnel of the fabric");
        }
    }

    /// Adds what no policy closes: neighbor discovery and failsafe ports. Before connection tracking, a
    /// reply is known by its source port.
    fn failsafe(&mut self, hook: HostHook) {
        if self.family == Family::V6 {
            let types = DISCOVERY.into_iter().chain([ROUTER_ADVERTISEMENT]);
            let types = Ranges::of(types.map(|kind| (kind, kind)));
            let conditions = vec![
                self.space.is(Field::Protocol, protocol::ICMPV6),
                self.space.is_in(Field::IcmpType, types, true),
            ];
            self.add(conditions, Act::Accept, "neighbor discovery");
        }
        let failsafe = &self.fabric.settings.failsafe;
        let (own, others) = match hook.is_inbound() {
            true => (&failsafe.inbound, &failsafe.outbound),
            false => (&failsafe.outbound, &failsafe.inbound),
        };
        let other_end = match hook.is_inbound() {
            true => Field::Source,
            false => Field::Destination,
        };
        for port in own {
            self.failsafe_port(port, Field::DestinationPort, other_end);
        }
        if hook.stage() == Stage::Untracked {
            for port in others {
                self.failsafe_port(port, Field::SourcePort, other_end);
            }
        }
    }

    fn failsafe_port(&mut self, port: &FailsafePort, field: Field, other_end: Field) {
        let mut conditions = vec![
            self.space.is(Field::Protocol, port.protocol),
            self.space.is(field, port.port),
        ];
        match port.net {
            None => {}
            Some((family, range)) if family == self.family => {
                let range = Ranges::of([range]);
                conditions.push(self.space.is_in(other_end, range, true));
            }
            Some(_) => return,
        }
        self.add(conditions, Act::Accept, "failsafe port");
    }
}
