//! Whether the sessions that the fabric determines have BFD.

use calico_model::DEFAULT_CONFIGURATION;

use crate::limits::BFD_MESH_NODES_MAX;
use crate::view::View;

/// Whether the sessions that the fabric determines have BFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FabricBfd {
    /// Sessions with the fabric's reflectors.
    pub(crate) reflectors: bool,
    /// Sessions of the mesh.
    pub(crate) mesh: bool,
}

impl FabricBfd {
    /// Returns the setting of a node, else that of the cluster, else the default: a large mesh has no
    /// BFD, because every node would send packets to all others.
    pub(crate) fn of(view: &View, node: &str) -> Self {
        let given = settings(view, node).find_map(|(_, setting)| setting.ok());
        if let Some(given) = given {
            return Self {
                reflectors: given,
                mesh: given,
            };
        }
        let nodes = view.nodes.iter();
        let of_mesh = nodes.filter(|(name, node)| !view.reflects(name, node));
        Self {
            reflectors: true,
            mesh: of_mesh.take(BFD_MESH_NODES_MAX + 1).count() <= BFD_MESH_NODES_MAX,
        }
    }
}

/// Returns the settings of a node with an invalid annotation, with its text.
pub(crate) fn invalid<'v>(
    view: &'v View,
    node: &str,
) -> impl Iterator<Item = (String, &'v str)> + use<'v> {
    settings(view, node).filter_map(|(name, setting)| Some((name, setting.err()?)))
}

/// Returns the annotations of the settings of a node, those with precedence first.
fn settings<'v>(
    view: &'v View,
    node: &str,
) -> impl Iterator<Item = (String, Result<bool, &'v str>)> + use<'v> {
    let names = [format!("node.{node}"), DEFAULT_CONFIGURATION.to_owned()];
    names.into_iter().filter_map(|name| {
        let text = view.configurations.get(&name)?.bfd.as_deref()?;
        Some((name, text.parse().map_err(|_| text)))
    })
}
