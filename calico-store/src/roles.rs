//! The etcd role of each part of a fabric: the keys that the part reads and writes.
//!
//! `TABLE` has one row for each access of a part. A [`EtcdRole`] is made from these rows for
//! one node: its ranges are single keys, or end at a separator of the data model, so that a role of
//! `node1` never has a key of `node10` or `node1-a`.

mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv4Addr;

use calico_model::Region;

pub use self::table::Part;
use self::table::{Keys, TABLE};
use crate::kv::KeyRange;

/// The owner of a role. Parts that are not of one node use only the region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The name of its Node.
    pub node: String,
    /// The region of Felix's reports.
    pub region: Region,
    /// The cluster IDs that a route reflector may claim.
    pub cluster_ids: Vec<Ipv4Addr>,
    /// The namespaces of the endpoints that the CNI plugin writes.
    pub namespaces: Namespaces,
}

/// The namespaces of the endpoints that the CNI plugin of a node writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// Every namespace. etcd then cannot separate the endpoints of different nodes, because the
    /// namespace precedes the node in a key.
    All,
    /// Only these.
    Only(Vec<String>),
}

impl Default for Namespaces {
    /// Returns the namespace of containers without a pod.
    fn default() -> Self {
        Self::Only(vec!["default".to_owned()])
    }
}

/// The type of a permission of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read and watch.
    Read,
    /// Put and delete.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Returns whether keys can be read and watched.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Returns whether keys can be written and deleted.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

impl fmt::Display for Access {
    /// Formats etcdctl's word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "readwrite",
        })
    }
}

/// A permission of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Its type.
    pub access: Access,
    /// Its keys.
    pub range: KeyRange,
    /// The use of these keys.
    pub purpose: &'static str,
}

/// The role of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdRole {
    /// The part.
    pub part: Part,
    /// The name in etcd: `cambric-` and the part, and the node if the part is of one node.
    pub name: String,
    /// The permissions, no two of the same range.
    pub permissions: Vec<Permission>,
}

impl EtcdRole {
    /// Returns the role of a part.
    pub fn new(part: Part, owner: &Owner) -> Self {
        let name = match part.is_of_one_node() {
            true => format!("cambric-{part}-{}", owner.node),
            false => format!("cambric-{part}"),
        };
        let mut permissions: Vec<Permission> = Vec::new();
        for row in TABLE.iter().filter(|row| row.part == part) {
            for range in row.keys.ranges(owner) {
                // etcd keeps one permission for each range.
                let same = permissions.iter_mut().find(|known| known.range == range);
                match same {
                    Some(known) if known.access != row.access => known.access = Access::ReadWrite,
                    Some(_) => {}
                    None => permissions.push(Permission {
                        access: row.access,
                        range,
                        purpose: row.purpose,
                    }),
                }
            }
        }
        Self {
            part,
            name,
            permissions,
        }
    }

    /// Returns whether the role may read a key.
    pub fn reads(&self, key: &[u8]) -> bool {
        self.may(key, Access::reads)
    }

    /// Returns whether the role may write and delete a key.
    pub fn writes(&self, key: &[u8]) -> bool {
        self.may(key, Access::writes)
    }

    /// Returns the ranges that the role may read.
    pub fn read_ranges(&self) -> impl Iterator<Item = &KeyRange> {
        let reads = |permission: &&Permission| permission.access.reads();
        self.permissions
            .iter()
            .filter(reads)
            .map(|permission| &permission.range)
    }

    fn may(&self, key: &[u8], how: fn(Access) -> bool) -> bool {
        let mut permissions = self.permissions.iter();
        permissions.any(|permission| how(permission.access) && permission.range.contains(key))
    }
}

impl Keys {
    /// Returns whether the keys are all that have the texts of [`Self::texts`] as prefix.
    const fn is_prefix(self) -> bool {
        matches!(
            self,
            Self::Kind(_)
                | Self::Prefix(_)
                | Self::OwnEndpointStatus
                | Self::OwnAffinities
                | Self::BalancerAffinities
                | Self::OwnServiceRoutes
                | Self::OwnEndpoints
        )
    }

    fn ranges(self, owner: &Owner) -> Vec<KeyRange> {
        let texts = self.texts(owner).into_iter();
        match self.is_prefix() {
            true => texts.map(KeyRange::prefix).collect(),
            false => texts.map(KeyRange::key).collect(),
        }
    }
}
