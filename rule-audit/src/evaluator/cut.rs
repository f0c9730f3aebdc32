//! Cut connections: their packets have a bit in the connection mark, and are dropped before all policies.

use super::fabric::Fabric;
use crate::packet::{Field, protocol, state};
use crate::space::{Act, ProgramId, Space, Step};

/// A base chain of cut connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cut {
    /// Packets through the host.
    Forward,
    /// Packets to the host.
    Input,
    /// Packets of the host.
    Output,
}

impl Cut {
    /// All chains.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Input, Self::Output];

    /// The chains with the ends of packets at which they name interfaces: true is the one where a packet
    /// arrives.
    pub const ENDS: [(Self, bool); 4] = [
        (Self::Forward, true),
        (Self::Forward, false),
        (Self::Input, true),
        (Self::Output, false),
    ];

    /// Returns the chain, the kernel's hook and the priority.
    pub const fn chain(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Forward => ("cut-forward", "forward", -2),
            Self::Input => ("cut-input", "input", -2),
            Self::Output => ("cut-output", "output", -2),
        }
    }
}

impl Fabric {
    /// Returns the program of a chain for an interface. A new TCP connection must begin with SYN: whether
    /// a packet has this flag is no field here.
    pub fn cut(&self, space: &mut Space, chain: Cut, interface: &str) -> ProgramId {
        let mut step = |conditions, act, text: &str| Step {
            conditions,
            act,
            place: space.place(text.to_owned()),
        };
        let mut steps = vec![
            step(vec![], Act::Drop, "cut connection"),
            step(vec![], Act::Either, "begin of a TCP connection"),
            step(vec![], Act::Accept, "no cut connection"),
        ];
        let conditions = [
            vec![space.is(Field::Cut, 1)],
            vec![
                space.is(Field::State, state::NEW),
                space.is(Field::Protocol, protocol::TCP),
            ],
            Vec::new(),
        ];
        for (step, conditions) in steps.iter_mut().zip(conditions) {
            step.conditions = conditions;
        }
        if chain != Cut::Forward && !self.is_workload(interface) {
            steps.remove(1);
        }
        space.program(steps)
    }
}
