//! The BGP sessions of a fabric, asked of its daemons.

use std::path::PathBuf;

use admin::{Command, Reply};
use lab::fabric::Fabric;

/// A session's state as the FSM calls it once it is up.
const ESTABLISHED: &str = "Established";

/// Sessions of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sessions {
    /// The machine.
    pub(super) machine: String,
    /// Neighbours with an established session.
    pub(super) up: Vec<String>,
    /// How many there shall be.
    pub(super) wanted: usize,
}

/// Asks every machine. A daemon that does not answer has none.
pub(super) async fn of(fabric: &Fabric) -> Vec<Sessions> {
    let (nodes, reflectors) = (fabric.nodes.len(), fabric.reflectors.len());
    let peers = if fabric.plan.shape.mesh {
        nodes - 1
    } else {
        reflectors
    };
    let mut all = Vec::new();
    for (machine, daemon, wanted) in fabric
        .reflectors
        .iter()
        .map(|m| (m, "route-reflector", nodes + reflectors - 1))
        .chain(fabric.nodes.iter().map(|m| (m, "bgp-client", peers)))
    {
        let up = established(machine.control(daemon)).await;
        all.push(Sessions {
            machine: machine.plan.name.clone(),
            up,
            wanted,
        });
    }
    all
}

/// What keeps the sessions from being all up; `Ok` has their number.
pub(super) async fn all_up(fabric: &Fabric) -> Result<usize, String> {
    for sessions in of(fabric).await {
        if sessions.up.len() != sessions.wanted {
            let Sessions {
                machine,
                up,
                wanted,
            } = sessions;
            return Err(format!("{machine} has {} of {wanted} sessions", up.len()));
        }
    }
    Ok(fabric.plan.sessions())
}

/// Which reflector does not answer yet.
pub(super) async fn reflectors_answer(fabric: &Fabric) -> Result<(), String> {
    for machine in &fabric.reflectors {
        let control = machine.control("route-reflector");
        if let Err(error) = admin::client::call(control, &Command::Status {}).await {
            return Err(error.to_string());
        }
    }
    Ok(())
}

/// The names of the neighbours that are established.
pub(super) async fn established(control: PathBuf) -> Vec<String> {
    let Ok(Reply::Neighbors(reply)) = admin::client::call(control, &Command::Neighbors {}).await
    else {
        return Vec::new();
    };
    let up = reply
        .neighbors
        .into_iter()
        .filter(|neighbor| neighbor.state == ESTABLISHED);
    up.map(|neighbor| neighbor.name).collect()
}
