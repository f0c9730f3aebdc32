//! The scenario of `cambric lab demo` in the simulator: a fabric starts, a workload moves, another
//! is withdrawn, a reflector is killed. All times are virtual.

use std::io::{self, Write};
use std::time::Duration;

use netns_lab::fabric::{Shape, ShapeError};

use crate::agenda::Daemon;
use crate::life::End;
use crate::limits::{CONVERGE, IDLE, SETTLE, WITHDRAWN};
use crate::log::Violation;
use crate::options::Options;
use crate::oracle::{fib, idle::Writes, sessions};
use crate::plants::Plants;
use crate::world::{SetupError, World};

/// The default size of the fabric.
pub const SHAPE: Shape = Shape {
    nodes: 4,
    reflectors: 2,
    workloads_per_node: 2,
    mesh: false,
};

/// How often the sessions are checked after a reflector was killed.
const LOOK: Duration = Duration::from_millis(1);

/// A reason why a demo ends early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// An oracle reports a violation.
    #[error("{0}")]
    Wrong(#[from] Violation),
    /// The fabric cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The simulator does not support such a fabric.
    #[error("the simulator has no full mesh")]
    Mesh,
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
}

impl From<ShapeError> for DemoError {
    fn from(error: ShapeError) -> Self {
        Self::Setup(error.into())
    }
}

/// Runs the demo with a fabric of [`SHAPE`].
///
/// # Errors
/// An oracle reports a violation; the error describes it.
pub fn run(out: &mut dyn Write) -> Result<(), DemoError> {
    run_with(SHAPE, 1, out)
}

/// Runs the demo with a fabric of any size, from a seed.
///
/// # Errors
/// As [`run`].
pub fn run_with(shape: Shape, seed: u64, out: &mut dyn Write) -> Result<(), DemoError> {
    if shape.mesh {
        return Err(DemoError::Mesh);
    }
    let options = Options {
        nodes: shape.nodes,
        reflectors: shape.reflectors,
        workloads: usize::from(shape.nodes) * usize::from(shape.workloads_per_node),
        ..Options::default()
    };
    let world = World::new(seed, options, Plants::default())?;
    writeln!(
        out,
        "A fabric of {} nodes under {} route reflectors, {} workloads on each, in one process;\n\
         the times are virtual.\n",
        shape.nodes, shape.reflectors, shape.workloads_per_node,
    )?;
    let outcome = Story {
        world,
        out: &mut *out,
    }
    .run();
    match outcome {
        Ok(()) => {
            writeln!(out, "\nAll steps succeeded.")?;
            Ok(())
        }
        Err(error) => {
            writeln!(out, "  ✗ {error}")?;
            Err(error)
        }
    }
}

struct Story<'o> {
    world: World,
    out: &'o mut dyn Write,
}

impl Story<'_> {
    fn run(&mut self) -> Result<(), DemoError> {
        self.come_up()?;
        if self.world.plan.nodes.len() > 1 {
            self.move_one()?;
        }
        self.withdraw_one()?;
        if self.world.plan.reflectors.len() > 1 {
            self.kill_reflector()?;
        }
        self.rest()
    }

    fn step(&mut self, name: &str, took: Duration, outcome: &str) -> io::Result<()> {
        let took = format!("{:.1} ms", took.as_secs_f64() * 1e3);
        writeln!(self.out, "  ✓ {name:<10}{took:>12}  {outcome}")
    }

    fn come_up(&mut self) -> Result<(), DemoError> {
        self.world.populate();
        self.world.start_all();
        let took = self.world.agree(CONVERGE)?;
        self.world.all_right()?;
        let sessions = self.world.plan.sessions();
        let routes: usize = self.world.routes().iter().sum();
        let (nodes, workloads) = (self.world.plan.nodes.len(), self.world.workloads.len());
        let outcome = format!(
            "{sessions} sessions; {routes} routes in {nodes} kernels, as the store has it for {workloads}\n\
             {:26}workloads; every packet from every node arrives",
            "",
        );
        Ok(self.step("converged", took, &outcome)?)
    }

    fn move_one(&mut self) -> Result<(), DemoError> {
        let nodes = self.world.plan.nodes.len();
        let Some((from, name)) = self
            .world
            .workloads
            .first()
            .map(|w| (w.place, w.plan.name.clone()))
        else {
            return Ok(());
        };
        let from = from.unwrap_or(0);
        let to = (from + 1) % nodes;
        self.world.place(0, to, (0, 0));
        let took = self.agree_after()?;
        self.world.all_right()?;
        let name_of = |at| self.world.net.name(at).to_owned();
        let outcome = format!(
            "{name} from {} to {}, with its addresses",
            name_of(from),
            name_of(to)
        );
        Ok(self.step("moved", took, &outcome)?)
    }

    fn withdraw_one(&mut self) -> Result<(), DemoError> {
        let Some(name) = self.world.workloads.last().map(|w| w.plan.name.clone()) else {
            return Ok(());
        };
        let last = self.world.workloads.len() - 1;
        if self.world.withdraw(last).is_empty() {
            return Ok(());
        }
        let took = self.agree_after()?;
        if took > WITHDRAWN {
            let what = format!("{name} was withdrawn after {took:?} only");
            return Err(self.world.violation("withdrawn", what).into());
        }
        let outcome = format!("{name} deleted from the store: removed from every kernel");
        Ok(self.step("withdrawn", took, &outcome)?)
    }

    /// Waits until every kernel agrees with the datastore; returns the time since the last change.
    fn agree_after(&mut self) -> Result<Duration, DemoError> {
        let begun = self.world.now();
        self.world.pass(Duration::from_nanos(1))?;
        self.world.agree(CONVERGE)?;
        Ok(self.world.now() - begun)
    }

    fn kill_reflector(&mut self) -> Result<(), DemoError> {
        let (nodes, reflectors) = (
            self.world.plan.nodes.len(),
            self.world.plan.reflectors.len(),
        );
        let name = self.world.net.name(nodes).to_owned();
        let (begun, before) = (self.world.now(), Writes::of(&self.world));
        self.world.end(nodes, Daemon::Bgp, End::Killed);
        while sessions::up(&self.world) > nodes * (reflectors - 1) {
            self.world.pass(LOOK)?;
            if self.world.now() - begun > CONVERGE {
                let what = format!("no session with {name} has ended");
                return Err(self.world.violation("sessions", what).into());
            }
        }
        let took = self.world.now() - begun;
        self.world.pass(SETTLE)?;
        self.world.expect("fib", &fib::check(&self.world))?;
        if !before.same_writes(&Writes::of(&self.world)) {
            let what = format!("killing {name} changed a kernel");
            return Err(self.world.violation("idle", what).into());
        }
        let outcome = format!("{name}, noticed everywhere: no route left any kernel");
        Ok(self.step("killed", took, &outcome)?)
    }

    fn rest(&mut self) -> Result<(), DemoError> {
        self.world.pass(SETTLE)?;
        let before = Writes::of(&self.world);
        self.world.pass(IDLE)?;
        let since = before.since(&Writes::of(&self.world));
        self.world.expect("idle", &since)?;
        self.world.expect("fib", &fib::check(&self.world))?;
        Ok(self.step("at rest", IDLE, "kernels read again: nothing to write")?)
    }
}
