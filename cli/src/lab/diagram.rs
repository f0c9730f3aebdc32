//! A diagram of a fabric.

use std::fmt::Write as _;

use netns_lab::fabric::Fabric;

/// Nodes that are drawn; further ones are only counted.
const NODES_DRAWN_MAX: usize = 8;

/// The content of a diagram: plain data, so that it can be drawn without a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scene {
    /// Reflectors, and whether each runs.
    reflectors: Vec<(String, bool)>,
    /// Nodes with their workloads, and how many more there are.
    nodes: Vec<(String, String, Vec<String>)>,
    more: usize,
    mesh: bool,
    asn: u32,
}

impl Scene {
    pub(super) fn of(fabric: &Fabric, dead: &[String]) -> Self {
        let alive = |name: &String| !dead.contains(name);
        let reflectors = fabric.reflectors.iter().map(|m| m.plan.name.clone());
        let nodes = fabric.nodes.iter().enumerate().map(|(place, node)| {
            let here = fabric.workloads.iter().filter(|w| w.place == place);
            let workloads = here.map(|w| w.name.clone()).collect();
            (node.plan.name.clone(), node.plan.v4.to_string(), workloads)
        });
        Self {
            reflectors: reflectors
                .map(|name| {
                    let up = alive(&name);
                    (name, up)
                })
                .collect(),
            nodes: nodes.take(NODES_DRAWN_MAX).collect(),
            more: fabric.nodes.len().saturating_sub(NODES_DRAWN_MAX),
            mesh: fabric.plan.shape.mesh,
            asn: fabric.plan.asn,
        }
    }

    /// Draws reflectors above, the underlay, and nodes below, each with its workloads.
    pub(super) fn draw(&self) -> String {
        let above: Vec<Box> = self
            .reflectors
            .iter()
            .map(|(name, up)| {
                Box(vec![
                    name.clone(),
                    if *up { "up" } else { "killed" }.to_owned(),
                ])
            })
            .collect();
        let below: Vec<Box> = self
            .nodes
            .iter()
            .map(|(name, address, workloads)| {
                Box(vec![name.clone(), address.clone(), workloads.join(" ")])
            })
            .collect();
        let width = row_width(&below).max(row_width(&above));
        let mut diagram = String::new();
        if !above.is_empty() {
            row(&mut diagram, &above, width, Edge::Below);
        }
        let what = if self.mesh { "full mesh" } else { UNDERLAY };
        let (up, down) = (stems(&above, width), stems(&below, width));
        let line: String = (0..width + 2 * GAP)
            .map(
                |column| match (up.contains(&column), down.contains(&column)) {
                    (true, true) => '╪',
                    (true, false) => '╧',
                    (false, true) => '╤',
                    (false, false) => '═',
                },
            )
            .collect();
        let _ = writeln!(diagram, "{line} {what}, AS {}", self.asn);
        row(&mut diagram, &below, width, Edge::Above);
        if self.more > 0 {
            let _ = writeln!(diagram, "  and {} more nodes", self.more);
        }
        diagram
    }
}

const UNDERLAY: &str = "10.0.0.0/24 fd00::/64";
const GAP: usize = 2;

/// Lines of text within a frame.
struct Box(Vec<String>);

impl Box {
    fn inner_width(&self) -> usize {
        self.0
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
            .max(5)
            + 2
    }
}

/// Which side of a box leads to the underlay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Above,
    Below,
}

fn row_width(boxes: &[Box]) -> usize {
    boxes
        .iter()
        .map(|b| b.inner_width() + 2 + GAP)
        .sum::<usize>()
        .saturating_sub(GAP)
}

/// Returns the columns of the stems of boxes that are drawn in the middle of `width`.
fn stems(boxes: &[Box], width: usize) -> Vec<usize> {
    let mut left = GAP + width.saturating_sub(row_width(boxes)) / 2;
    let mut columns = Vec::new();
    for b in boxes {
        columns.push(left + b.inner_width().div_ceil(2));
        left += b.inner_width() + 2 + GAP;
    }
    columns
}

/// Draws boxes side by side, in the middle of `width`.
fn row(diagram: &mut String, boxes: &[Box], width: usize, to: Edge) {
    let margin = " ".repeat(GAP + width.saturating_sub(row_width(boxes)) / 2);
    let gap = " ".repeat(GAP);
    let height = boxes.iter().map(|b| b.0.len()).max().unwrap_or(0);
    let mut line = |cells: Vec<String>| {
        let text = format!("{margin}{}", cells.join(&gap));
        let _ = writeln!(diagram, "{}", text.trim_end());
    };
    let stem = |b: &Box| format!("{:^1$}", "│", b.inner_width() + 2);
    let frame = |b: &Box, left: char, right: char, knot: Option<char>| {
        let knot = knot.map_or_else(|| "─".to_owned(), String::from);
        format!("{left}{knot:─^0$}{right}", b.inner_width())
    };
    if to == Edge::Above {
        line(boxes.iter().map(stem).collect());
    }
    let knot = |edge: Edge, c: char| (to == edge).then_some(c);
    line(
        boxes
            .iter()
            .map(|b| frame(b, '┌', '┐', knot(Edge::Above, '┴')))
            .collect(),
    );
    for i in 0..height {
        let cell = |b: &Box| {
            let text = b.0.get(i).map_or("", String::as_str);
            format!("│{text:^0$}│", b.inner_width())
        };
        line(boxes.iter().map(cell).collect());
    }
    line(
        boxes
            .iter()
            .map(|b| frame(b, '└', '┘', knot(Edge::Below, '┬')))
            .collect(),
    );
    if to == Edge::Below {
        line(boxes.iter().map(stem).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_of_two_nodes_and_a_dead_reflector() {
        let scene = Scene {
            reflectors: vec![("rr1".into(), false)],
            nodes: vec![
                (
                    "node1".into(),
                    "10.0.0.11".into(),
                    vec!["w1".into(), "w2".into()],
                ),
                ("node2".into(), "10.0.0.12".into(), vec![]),
            ],
            more: 3,
            mesh: false,
            asn: 64512,
        };
        let expected = "
           ┌────────┐
           │  rr1   │
           │ killed │
           └───┬────┘
               │
════════╤══════╧═══════╤════════ 10.0.0.0/24 fd00::/64, AS 64512
        │              │
  ┌─────┴─────┐  ┌─────┴─────┐
  │   node1   │  │   node2   │
  │ 10.0.0.11 │  │ 10.0.0.12 │
  │   w1 w2   │  │           │
  └───────────┘  └───────────┘
  and 3 more nodes
";
        assert_eq!(
            scene.draw(),
            expected.trim_start_matches('\n'),
            "{}",
            scene.draw()
        );
    }
}
