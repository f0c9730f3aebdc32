//! A node that lies: it announces the address of another node's workload.

use std::time::Duration;

use bgp_proto::{Attributes, Family, Net, RouterId};
use bgp_speaker::Input;
use bgp_speaker::bgp_fsm::Instant;
use calico_model::{FabricKey, Kind};
use ipnet::IpNet;

use crate::agenda::{At, Daemon};
use crate::scenario::{Act, Lie};
use crate::world::World;

/// Longest time of a lie.
const LIE_MAX: Duration = Duration::from_secs(60);

/// LOCAL_PREF of a lie: it is preferred to the true route.
const LOCAL_PREF: u32 = 1_000;

impl World {
    /// Writes the Nodes, which reflectors identify their neighbors by.
    pub(crate) fn record_nodes(&mut self) {
        let nodes = self.plan.nodes.iter().map(|plan| (plan, ""));
        let reflector = r#","routeReflectorClusterID":"244.0.0.1""#;
        let reflectors = self.plan.reflectors.iter().map(|plan| (plan, reflector));
        let all = nodes.chain(reflectors).map(|(plan, more)| {
            let (name, v4, v6) = (&plan.name, plan.net_v4(), plan.net_v6());
            let bgp = format!(r#"{{"ipv4Address":"{v4}","ipv6Address":"{v6}"{more}}}"#);
            let value = format!(
                r#"{{"kind":"Node","apiVersion":"projectcalico.org/v3",
                "metadata":{{"name":"{name}"}},"spec":{{"bgp":{bgp}}}}}"#
            );
            (format!("{}{name}", Kind::Node.prefix()), value.into_bytes())
        });
        let all: Vec<(String, Vec<u8>)> = all.collect();
        self.store.change(&all, &[]);
        self.stir_store();
    }

    /// Lets a node announce a workload that it has never had. The workload stays at its node as long
    /// as the lie lasts.
    pub(crate) fn lie_any(&mut self) {
        let (liar, placed) = (self.any_node(), self.placed());
        let workload = self.chance.pick(&placed).copied();
        let forges = self.chance.strikes(500);
        let length = self.up_to(LIE_MAX);
        let Some(workload) = workload else { return };
        let state = self.workloads.get_mut(workload);
        let Some(state) = state.filter(|state| !state.had_by.contains(&liar)) else {
            return;
        };
        state.busy_until = self.now + length + 1;
        let [net, _] = state.plan.nets();
        let victim = state
            .place
            .and_then(|at| self.machines.get(at))
            .map(|m| m.v4);
        let attributes = Attributes {
            local_pref: Some(LOCAL_PREF),
            originator_id: victim.filter(|_| forges).map(RouterId),
            ..Attributes::default()
        };
        self.trace(liar, &format!("announces {net}, which it does not have"));
        self.lies.push(Lie {
            workload,
            liar,
            net,
        });
        self.register(liar, true);
        self.announce(liar, net, Some(attributes));
        self.later(length, Act::Confess { workload, liar });
    }

    /// Ends a lie.
    pub(crate) fn confess(&mut self, workload: usize, liar: At) {
        let is_it = |lie: &Lie| (lie.workload, lie.liar) == (workload, liar);
        if let Some(at) = self.lies.iter().position(is_it) {
            let lie = self.lies.remove(at);
            self.announce(liar, lie.net, None);
            self.register(liar, false);
        }
    }

    pub(crate) fn confess_all(&mut self) {
        while let Some(Lie { workload, liar, .. }) = self.lies.first().copied() {
            self.confess(workload, liar);
        }
    }

    /// Registers a node as a route reflector, or removes that: each writer of registrations can.
    fn register(&mut self, liar: At, registers: bool) {
        let name = self.machines.get(liar).map(|machine| machine.name.clone());
        let key = format!("{}{}", FabricKey::REFLECTORS, name.unwrap_or_default());
        match registers {
            true => self.store.change(&[(key, b"{}".to_vec())], &[]),
            false => self.store.change(&[], &[key]),
        };
        self.stir_store();
    }

    fn announce(&mut self, at: At, net: IpNet, attributes: Option<Attributes>) {
        let now = Instant(self.now);
        let bgp = self.machines.get_mut(at).and_then(|m| m.bgp.run.as_mut());
        let (Some(bgp), IpNet::V4(net)) = (bgp, net) else {
            return;
        };
        let input = Input::Local {
            family: Family::IPV4_UNICAST,
            net: Net::V4(net.into()),
            attributes,
            interface: None,
        };
        bgp.speaker.handle(now, input);
        self.wake(at, Daemon::Bgp);
    }
}
